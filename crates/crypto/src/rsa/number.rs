//! The operations with a public and a private key, over numbers of a fixed size.
//!
//! Montgomery forms, exponentiation and inversion are those of the crate `crypto-bigint`, in constant time. Here is what is
//! above them: the Chinese remainder theorem, blinding, and a look at each result.

use crypto_bigint::modular::{FixedMontyForm, FixedMontyParams};
use crypto_bigint::{NonZero, Odd, Uint};
use zeroize::Zeroize;

use super::RsaError;

/// A public key of `N` limbs of 64 bits.
#[derive(Clone)]
pub(super) struct Public<const N: usize> {
    n: FixedMontyParams<N>,
    e: Uint<1>,
}

/// A private key: its primes have `H` limbs, half of `N`.
pub(super) struct Private<const N: usize, const H: usize> {
    pub(super) public: Public<N>,
    p: FixedMontyParams<H>,
    q: FixedMontyParams<H>,
    dp: Uint<H>,
    dq: Uint<H>,
    /// The inverse of `q` modulo `p`.
    coefficient: Uint<H>,
}

impl<const N: usize, const H: usize> Drop for Private<N, H> {
    fn drop(&mut self) {
        let Self { p, q, dp, dq, coefficient, .. } = self;
        p.zeroize();
        q.zeroize();
        dp.zeroize();
        dq.zeroize();
        coefficient.zeroize();
    }
}

/// A number of big-endian bytes, if it fits.
fn number<const L: usize>(bytes: &[u8]) -> Option<Uint<L>> {
    let mut limbs = [0u64; L];
    for (limb, bytes) in limbs.iter_mut().zip(bytes.rchunks(8)) {
        *limb = bytes.iter().fold(0, |all, byte| all << 8 | u64::from(*byte));
    }
    let fits = bytes.len() <= 8 * L;
    let own = Uint::from_words(limbs);
    limbs.zeroize();
    fits.then_some(own)
}

fn odd<const L: usize>(bytes: &[u8]) -> Option<Odd<Uint<L>>> {
    Odd::new(number(bytes)?).into_option()
}

/// Big-endian bytes of a number, as many as `out` has.
pub(super) fn write<const L: usize>(own: &Uint<L>, out: &mut [u8]) {
    for (bytes, word) in out.rchunks_mut(8).zip(own.as_words()) {
        bytes.copy_from_slice(&word.to_be_bytes()[8 - bytes.len()..]);
    }
}

impl<const N: usize> Public<N> {
    pub(super) fn new([n, e]: [&[u8]; 2]) -> Option<Self> {
        let own = odd::<N>(n).filter(|_| n.len() == 8 * N && n[0] & 0x80 != 0)?;
        let e = odd::<1>(e).filter(|e| *e.as_ref() > Uint::ONE)?;
        Some(Self { n: FixedMontyParams::new_vartime(own), e: e.get() })
    }

    /// A number below the modulus.
    pub(super) fn number(&self, bytes: &[u8]) -> Option<Uint<N>> {
        number(bytes).filter(|own| own < self.n.modulus().as_ref())
    }

    /// To the power of the public exponent.
    pub(super) fn raise(&self, own: &Uint<N>) -> Uint<N> {
        FixedMontyForm::new(own, &self.n).pow_vartime(&self.e).retrieve()
    }

    fn reduced(&self, own: &Uint<N>) -> FixedMontyForm<N> {
        FixedMontyForm::new(&own.rem(self.n.modulus().as_nz_ref()), &self.n)
    }
}

impl<const N: usize, const H: usize> Private<N, H> {
    /// Of modulus, exponents, primes and coefficient; `None` where they do not belong together.
    pub(super) fn new([n, e, _, p, q, dp, dq, coefficient]: [&[u8]; 8]) -> Option<Self> {
        const { assert!(N == 2 * H) }
        let public = Public::new([n, e])?;
        let [p, q] = [odd::<H>(p)?, odd::<H>(q)?];
        let whole = p.as_ref().resize::<N>().wrapping_mul(&q.as_ref().resize::<N>());
        if whole != *public.n.modulus().as_ref()
            || *p.as_ref() <= Uint::ONE
            || *q.as_ref() <= Uint::ONE
        {
            return None;
        }
        let own = Self {
            public,
            p: FixedMontyParams::new(p),
            q: FixedMontyParams::new(q),
            dp: number(dp)?,
            dq: number(dq)?,
            coefficient: number(coefficient)?,
        };
        // Exponents and coefficient are right if a number comes back.
        let two = Uint::from_u8(2);
        (own.public.raise(&own.root(&two)) == two).then_some(own)
    }

    /// The number whose power is `own`, without blinding.
    fn root(&self, own: &Uint<N>) -> Uint<N> {
        let below = |prime: &FixedMontyParams<H>, exponent: &Uint<H>| {
            let reduced = own.rem(prime.modulus().as_nz_ref());
            FixedMontyForm::new(&reduced, prime).pow(exponent)
        };
        let mut first = below(&self.p, &self.dp);
        let mut second = below(&self.q, &self.dq).retrieve();
        // Garner: second + q * ((first - second) / q mod p)
        let p: &NonZero<Uint<H>> = self.p.modulus().as_nz_ref();
        let mut second_p = FixedMontyForm::new(&second.rem(p), &self.p);
        let coefficient = FixedMontyForm::new(&self.coefficient.rem(p), &self.p);
        let mut quotient = first.sub(&second_p).mul(&coefficient).retrieve();
        let q = self.q.modulus().as_ref().resize::<N>();
        let made = quotient.resize::<N>().wrapping_mul(&q).wrapping_add(&second.resize());
        first.zeroize();
        second.zeroize();
        second_p.zeroize();
        quotient.zeroize();
        made
    }

    /// The number whose power is `own`, a number below the modulus: a signature, or a text.
    ///
    /// What is computed with the private key is `own` times the power of a random number, so that its time says nothing
    /// about `own`. A result that is not right is not given away: two of them reveal the primes (Boneh, DeMillo, Lipton).
    pub(super) fn apply(&self, own: &Uint<N>) -> Result<Uint<N>, RsaError> {
        let n = &self.public;
        let mut bytes = [[0; 8]; N];
        getrandom::fill(bytes.as_flattened_mut()).map_err(|_| RsaError::NoRandom)?;
        let mut random = n.reduced(&number(bytes.as_flattened()).ok_or(RsaError::NoRandom)?);
        bytes.zeroize();
        // One of 2^500 has none.
        let mut inverse = random.invert().into_option().ok_or(RsaError::NoRandom)?;
        let mut blinded = random.pow_vartime(&n.e).mul(&FixedMontyForm::new(own, &n.n)).retrieve();
        let mut root = self.root(&blinded);
        let made = FixedMontyForm::new(&root, &n.n).mul(&inverse).retrieve();
        random.zeroize();
        inverse.zeroize();
        blinded.zeroize();
        root.zeroize();
        match n.raise(&made) == *own {
            true => Ok(made),
            false => Err(RsaError::Fault),
        }
    }
}
