//! strongSwan in network namespaces: two key-exchange daemons, one or both with the data path in user space.
//!
//! ```text
//!   left                                     right
//!   charon-systemd ◀── IKE, UDP 500/4500 ──▶ charon-systemd
//!   10.1.0.1/24 on lo                        10.2.0.1/24 on lo
//!   eth0 192.0.2.1/24 ───────────────────── eth0 192.0.2.2/24
//! ```
//!
//! `charon-systemd` runs without systemd; unlike `charon` it has no file with its process id, so several run on one machine.
//! Each has its own configuration (`STRONGSWAN_CONF`), control socket (`vici`), log and folder of credentials.
//!
//! - [`DataPath::Libipsec`]: ESP in UDP 4500, by the daemon itself, over the interface `ipsec0`. The kernel needs no ESP.
//! - [`DataPath::Xfrm`]: the daemon speaks NETLINK_XFRM, which `shim/netlink_xfrm.c` leads to a socket of the test. Who
//!   answers there may do the data path, or nobody does.
//!
//! Debian's packages lack the plugin `save-keys`. At log level 4 of `chd` the daemon prints the keys of each CHILD_SA, and
//! [`Charon::keys`] reads them. These keys are for tests.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::netns::{self, Netns};
use crate::process::{Process, Stop};
use crate::{Scratch, repository, require_namespaces, require_tool, skip, wait_until};

const PLUGINS: &str = "/usr/lib/ipsec/plugins/libstrongswan-kernel-libipsec.so";
const LIMIT: Duration = Duration::from_secs(30);

/// Are there namespaces, and all programs and plugins? Otherwise the test is skipped.
pub fn require_strongswan() -> bool {
    let tools = ["charon-systemd", "swanctl", "pki"];
    if !require_namespaces() || tools.iter().any(|tool| require_tool(tool).is_none()) {
        return false;
    }
    let has_plugin = Path::new(PLUGINS).is_file();
    if !has_plugin {
        skip("strongSwan's kernel-libipsec is not installed (`cargo xtask setup`)");
    }
    has_plugin
}

/// Who carries the packets.
#[derive(Debug, Clone)]
pub enum DataPath {
    /// The daemon.
    Libipsec,
    /// Whoever answers for the kernel.
    Xfrm {
        /// The library that [`shim`] makes.
        shim: PathBuf,
        /// The socket (`SOCK_SEQPACKET`) of who answers.
        socket: PathBuf,
    },
}

/// How the daemons prove who they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Proof {
    /// By a pre-shared key.
    Psk,
    /// By certificates of one authority.
    Certificates,
}

/// What the two daemons agree about.
#[derive(Debug, Clone)]
pub struct Tunnel {
    /// How they prove who they are.
    pub proof: Proof,
    /// Proposals for ESP, such as `aes128gcm16`.
    pub esp: String,
    /// More lines for the child of the left daemon, such as `rekey_time = 2s`.
    pub child: String,
    /// Of the left and the right daemon: its own address and the other one's, as it knows them; `%any` for any. Both are known by the
    /// addresses of [the drawing](self).
    pub addresses: [[String; 2]; 2],
    /// A daemon whose address changes takes its associations along (RFC 4555).
    pub mobike: bool,
}

impl Default for Tunnel {
    fn default() -> Self {
        let ends = ["192.0.2.1", "192.0.2.2"].map(str::to_owned);
        let [left, right] = ends.clone();
        Self {
            proof: Proof::Psk,
            esp: "aes128gcm16".into(),
            child: String::new(),
            addresses: [ends, [right, left]],
            mobike: false,
        }
    }
}

/// Compiles the library that leads NETLINK_XFRM sockets of a program to a socket of the test, into a folder.
pub fn shim(folder: &Path) -> Option<PathBuf> {
    let compiler = require_tool("gcc")?;
    let library = folder.join("netlink_xfrm.so");
    let source = repository().join("testkit/shim/netlink_xfrm.c");
    let mut command = Command::new(compiler);
    command.args(["-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-O1", "-o"]);
    run(command.arg(&library).arg(source).arg("-ldl"));
    Some(library)
}

/// The ends of [the drawing](self).
pub struct Ends {
    /// 192.0.2.1, in front of 10.1.0.0/24.
    pub left: Netns,
    /// 192.0.2.2, in front of 10.2.0.0/24.
    pub right: Netns,
}

impl Ends {
    /// Two namespaces with a link between them.
    pub fn new(purpose: &str) -> Ends {
        let (left, right) = (Netns::new(purpose), Netns::new(purpose));
        let ends = ((&left, "eth0", netns::mac::LEFT), (&right, "eth0", netns::mac::RIGHT));
        netns::veth(ends.0, ends.1, 1500);
        for (own, number) in [(&left, 1), (&right, 2)] {
            own.address("eth0", &format!("192.0.2.{number}/24"));
            own.address("lo", &format!("10.{number}.0.1/24"));
        }
        Ends { left, right }
    }
}

/// A running daemon; it ends with its value.
pub struct Charon {
    process: Process,
    folder: Scratch,
    netns: String,
}

/// The keys of a CHILD_SA, as this end's log has them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ChildKeys {
    /// Of the one that asked for it: encryption and integrity, the latter empty for combined algorithms.
    pub initiator: [Vec<u8>; 2],
    /// Of the one that answered.
    pub responder: [Vec<u8>; 2],
    /// Index, source and destination of both associations: that which receives first.
    pub spis: Vec<(u32, String, String)>,
}

impl Charon {
    /// Starts both daemons, with everything loaded; nothing is established.
    ///
    /// # Panics
    /// Where a program fails.
    pub fn pair(ends: &Ends, paths: [DataPath; 2], tunnel: &Tunnel) -> [Charon; 2] {
        let authority = Scratch::new();
        if tunnel.proof == Proof::Certificates {
            certify(authority.path());
        }
        let [left, right] = paths;
        let start = |own, path| Charon::start(own, path, tunnel, authority.path());
        [start((&ends.left, 1), left), start((&ends.right, 2), right)]
    }

    fn start(own: (&Netns, u8), path: DataPath, tunnel: &Tunnel, authority: &Path) -> Charon {
        let (netns, number) = own;
        let folder = Scratch::new();
        let mut command = Command::new("ip");
        command.args(["netns", "exec", netns.name()]);
        let backend = match &path {
            DataPath::Libipsec => "kernel-libipsec kernel-netlink",
            DataPath::Xfrm { .. } => "kernel-netlink",
        };
        let root = folder.path().display().to_string();
        folder.write("strongswan.conf", &daemon(&root, backend));
        folder.write("swanctl.conf", &connection(number, tunnel));
        for (name, files) in
            [("x509", &["own.crt"][..]), ("x509ca", &["ca.crt"]), ("private", &["own.key"])]
        {
            std::fs::create_dir(folder.join(name)).expect("a folder of credentials");
            if tunnel.proof == Proof::Certificates {
                for file in files {
                    let from = authority.join(file.replace("own", &number.to_string()));
                    std::fs::copy(from, folder.join(name).join(file)).expect("a credential");
                }
            }
        }
        command.arg("env").arg(format!("STRONGSWAN_CONF={root}/strongswan.conf"));
        if let DataPath::Xfrm { shim, socket } = &path {
            command.arg(format!("LD_PRELOAD={}", shim.display()));
            command.arg(format!("NETLINK_XFRM_SOCKET={}", socket.display()));
        }
        command.arg(require_tool("charon-systemd").expect("charon-systemd"));
        let process = Process::spawn(command);
        let charon = Charon { process, folder, netns: netns.name().to_owned() };
        let is_up = wait_until(LIMIT, || charon.folder.join("vici").exists());
        assert!(is_up, "charon did not start\n{}\n{}", charon.process.output(), charon.log());
        let file = charon.folder.join("swanctl.conf").display().to_string();
        charon.swanctl(&["--load-all", "--file", &file]);
        charon
    }

    /// Runs `swanctl`, which must succeed; its output.
    ///
    /// # Panics
    /// Where it fails.
    pub fn swanctl(&self, words: &[&str]) -> String {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.netns]);
        command.arg(require_tool("swanctl").expect("swanctl")).args(words);
        command.arg("--uri").arg(format!("unix://{}", self.folder.join("vici").display()));
        run_or(&mut command, || self.log())
    }

    /// Establishes IKE_SA and CHILD_SA.
    ///
    /// # Panics
    /// Where they do not come up.
    pub fn initiate(&self) {
        self.swanctl(&["--initiate", "--child", "net", "--timeout", "20"]);
    }

    /// What it has logged so far, keys included.
    pub fn log(&self) -> String {
        let bytes = std::fs::read(self.folder.join("charon.log")).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// The keys of all CHILD_SAs so far, the first one first.
    pub fn keys(&self) -> Vec<ChildKeys> {
        keys(&self.log())
    }

    /// Ends it as a service manager does: it removes its associations and policies.
    pub fn stop(&mut self) {
        self.process.stop(Stop::Terminate, LIMIT);
    }
}

/// Keys in a log: `encryption initiator key => 20 bytes @ 0x…`, lines of sixteen bytes, `SPI 0x…, src … dst …`.
fn keys(log: &str) -> Vec<ChildKeys> {
    let mut all: Vec<ChildKeys> = Vec::new();
    let mut own = ChildKeys::default();
    let mut place: Option<(bool, usize)> = None;
    for line in log.lines() {
        let Some((_, text)) = line.split_once("[CHD] ") else {
            place = None;
            continue;
        };
        let words: Vec<&str> = text.split_whitespace().collect();
        match words[..] {
            [what @ ("encryption" | "integrity"), who, "key", "=>", ..] => {
                place = Some((who == "initiator", usize::from(what == "integrity")));
            }
            ["SPI", spi, "src", source, "dst", destination] => {
                let digits = spi.trim_start_matches("0x").trim_end_matches(',');
                let spi = u32::from_str_radix(digits, 16).unwrap_or_default();
                own.spis.push((spi, source.to_owned(), destination.to_owned()));
                if own.spis.len() == 2 {
                    all.push(std::mem::take(&mut own));
                }
            }
            [offset, ref rest @ ..] if offset.ends_with(':') && place.is_some() => {
                let (is_initiator, at) = place.unwrap_or_default();
                let key = if is_initiator { &mut own.initiator } else { &mut own.responder };
                let digits = rest.iter().take(16).take_while(|word| word.len() == 2);
                key[at].extend(digits.map_while(|word| u8::from_str_radix(word, 16).ok()));
            }
            _ => place = None,
        }
    }
    all
}

fn daemon(root: &str, backend: &str) -> String {
    format!(
        "charon-systemd {{
  load = random nonce aes sha1 sha2 hmac kdf gcm openssl pem pkcs1 pkcs8 x509 pubkey constraints socket-default {backend} vici
  retransmit_base = 1
  plugins {{
    vici {{ socket = unix://{root}/vici }}
    kernel-libipsec {{ allow_peer_ts = yes }}
  }}
  journal {{ default = -1 }}
  syslog {{
    daemon {{ default = -1 }}
    auth {{ default = -1 }}
  }}
  filelog {{
    log {{
      path = {root}/charon.log
      flush_line = yes
      default = 1
      chd = 4
      knl = 2
    }}
  }}
}}
"
    )
}

fn connection(number: u8, tunnel: &Tunnel) -> String {
    let other = 3 - number;
    let Tunnel { proof, esp, child, addresses, mobike } = tunnel;
    let [own_address, other_address] = &addresses[usize::from(number) - 1];
    let mobike = if *mobike { "yes" } else { "no" };
    let (ours, theirs) = match proof {
        Proof::Psk => ("auth = psk", "auth = psk"),
        Proof::Certificates => {
            ("auth = pubkey\n      certs = own.crt", "auth = pubkey\n      cacerts = ca.crt")
        }
    };
    let child = if number == 1 { child.as_str() } else { "" };
    let mut text = format!(
        "connections {{
  net {{
    local_addrs = {own_address}
    remote_addrs = {other_address}
    version = 2
    mobike = {mobike}
    proposals = aes128-sha256-ecp256
    local {{
      {ours}
      id = 192.0.2.{number}
    }}
    remote {{
      {theirs}
      id = 192.0.2.{other}
    }}
    children {{
      net {{
        local_ts = 10.{number}.0.0/24
        remote_ts = 10.{other}.0.0/24
        esp_proposals = {esp}
        mode = tunnel
        {child}
      }}
    }}
  }}
}}
"
    );
    if *proof == Proof::Psk {
        let _ = writeln!(text, "secrets {{\n  ike {{\n    secret = \"only for tests\"\n  }}\n}}");
    }
    text
}

/// An authority and a certificate for each end: `ca.crt`, `1.crt`, `1.key`, `2.crt`, `2.key`.
fn certify(folder: &Path) {
    let pki = |words: &str, to: &str| {
        let mut command = Command::new(require_tool("pki").expect("pki"));
        command.current_dir(folder).args(words.split(' ')).args(["--outform", "pem"]);
        std::fs::write(folder.join(to), run(&mut command)).expect("write a credential");
    };
    pki("--gen --type ecdsa --size 256", "ca.key");
    pki("--self --ca --lifetime 2 --in ca.key --type ecdsa --dn CN=tests", "ca.crt");
    for number in [1, 2] {
        pki("--gen --type ecdsa --size 256", &format!("{number}.key"));
        let words = format!(
            "--issue --lifetime 2 --in {number}.key --type priv --cacert ca.crt --cakey ca.key \
             --dn CN=end-{number} --san 192.0.2.{number}"
        );
        pki(&words, &format!("{number}.crt"));
    }
}

fn run(command: &mut Command) -> String {
    run_or(command, String::new)
}

fn run_or(command: &mut Command, log: impl Fn() -> String) -> String {
    let output = command.stdin(Stdio::null()).output();
    let output = output.unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}\n{text}{errors}{}", log());
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_read_from_a_log() {
        let log = "\
12[CHD]   using AES_CBC for encryption
12[CHD] encryption initiator key => 16 bytes @ 0x55ff68550580
12[CHD]    0: 00 01 02 03 04 05 06 07 08 09 0A 0B 0C 0D 0E 0F  ................
12[CHD] encryption responder key => 16 bytes @ 0x55ff68550740
12[CHD]    0: 10 11 12 13 14 15 16 17 18 19 1A 1B 1C 1D 1E 1F  ................
12[CHD] integrity initiator key => 20 bytes @ 0x55ff68550740
12[CHD]    0: 20 21 22 23 24 25 26 27 28 29 2A 2B 2C 2D 2E 2F  . ! # $
12[CHD]   16: 30 31 32 33                                      0123
12[CHD] integrity responder key => 1 bytes @ 0x55ff68550740
12[CHD]    0: 40                                               @
12[CHD] adding inbound ESP SA
12[CHD]   SPI 0x544da342, src 192.0.2.2 dst 192.0.2.1
12[KNL] adding SAD entry
12[CHD]   SPI 0x8e5c030e, src 192.0.2.1 dst 192.0.2.2
";
        let all = keys(log);
        assert_eq!(all.len(), 1);
        let ChildKeys { initiator, responder, spis } = &all[0];
        assert_eq!(initiator[0], (0..16).collect::<Vec<u8>>());
        assert_eq!(initiator[1], (0x20..0x34).collect::<Vec<u8>>());
        assert_eq!(responder[0], (0x10..0x20).collect::<Vec<u8>>());
        assert_eq!(responder[1], [0x40]);
        assert_eq!(spis[0], (0x544d_a342, "192.0.2.2".into(), "192.0.2.1".into()));
        assert_eq!(spis[1].0, 0x8e5c_030e);
    }
}
