//! The module `signed`: drops UDP datagrams that do not end with an RSA signature of what is before it (RSASSA-PKCS1-v1_5 with
//! SHA-256, RFC 8017 §8.2), and what is too short to have one. The public key is in `signed.der` in the working directory.

use controlplane::module::{Act, MODULE_DROP, Module, PacketAt, Parameters};
use crypto::rsa::PublicKey;

/// What `main` adds to the shipped applications.
pub static DESCRIPTOR: controlplane::Descriptor = controlplane::Descriptor::of_module::<Signed>();

/// The key, once it is read.
#[derive(Default)]
pub struct Signed(Option<PublicKey>);

impl Module for Signed {
    type State = ();
    const NAME: &str = "signed";
    const ABOUT: &str = "Drops UDP datagrams without the right RSA signature at their end.";

    fn set_up(&mut self, _: &Parameters<'_>) -> Result<(), String> {
        let der = std::fs::read("signed.der").map_err(|error| format!("signed.der: {error}"))?;
        let key = PublicKey::from_der(&der).map_err(|error| format!("signed.der: {error}"))?;
        self.0 = Some(key);
        Ok(())
    }

    fn process_udp(&mut self, at: &mut PacketAt<'_>, (): &mut ()) -> Act {
        let payload = at.payload();
        let is_right = self.0.as_ref().is_some_and(|key| {
            let text = payload.len().checked_sub(key.len());
            text.is_some_and(|end| key.verify(&payload[..end], &payload[end..]).is_ok())
        });
        if is_right { Act::Pass } else { Act::Drop(MODULE_DROP) }
    }
}
