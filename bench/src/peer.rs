//! DPDK's lookups, libnids and Vectorscan in a child program (`bench/peers/rte_fib_peer.c`, `rte_hash_peer.c`,
//! `rte_acl_peer.c`, `nids_peer.c`, `vectorscan_peer.c`), round by round.
//!
//! The peer holds table and keys; each round is one pass over the keys, timed by the peer itself,
//! so that rounds of it and of ours can alternate. Answers are checked: every round returns their
//! sum, `check` a hash over them in order ([`hash`] is the same over ours).

use std::ffi::OsStr;
use std::io::{self, BufRead, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use lookup::{Key6, NextHopId, Prefix};

/// Which of the peer's tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// `rte_fib`, DIR24_8, next hops of 4 bytes.
    V4,
    /// `rte_fib6`, TRIE, next hops of 4 bytes.
    V6,
}

impl Family {
    fn digit(self) -> u8 {
        match self {
            Self::V4 => 4,
            Self::V6 => 6,
        }
    }

    /// The lookup functions that the peer can use. Those that the processor lacks are
    /// refused by [`Peer::variant`].
    pub fn variants(self) -> &'static [&'static str] {
        match self {
            Self::V4 => &["scalar_macro", "scalar_inline", "scalar_uni", "avx512"],
            Self::V6 => &["scalar", "avx512"],
        }
    }
}

/// The lookup functions of `rte_acl`; those that the processor lacks are refused by [`Peer::acl_variant`].
pub const ACL_VARIANTS: [&str; 5] = ["scalar", "sse", "avx2", "avx512x16", "avx512x32"];

/// One pass over the keys.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Round {
    /// Time that the thread ran, in seconds (`CLOCK_THREAD_CPUTIME_ID`): measure ours alike.
    pub seconds: f64,
    /// Wrapping sum of all answers.
    pub sum: u64,
}

/// The child program. Ends with this value.
#[derive(Debug)]
pub struct Peer {
    child: Child,
    commands: BufWriter<ChildStdin>,
    answers: BufReader<ChildStdout>,
    version: String,
    folder: PathBuf, // of the files handed over
}

impl Peer {
    /// Starts `binary`, which may use `memory_mb` of memory for its tables.
    pub fn start(binary: impl AsRef<OsStr>, memory_mb: u32) -> io::Result<Self> {
        let folder = std::env::temp_dir().join(format!("shadeline-peer-{}", std::process::id()));
        std::fs::create_dir_all(&folder)?;
        let mut child = Command::new(binary)
            .arg(memory_mb.to_string())
            .env("RUNTIME_DIRECTORY", &folder) // where DPDK puts its own files
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let (Some(stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(io::Error::other("the peer has no pipes"));
        };
        let (commands, answers) = (BufWriter::new(stdin), BufReader::new(stdout));
        let mut peer = Self { child, commands, answers, version: String::new(), folder };
        peer.version = peer.answer()?;
        Ok(peer)
    }

    /// What the peer says it is, such as `DPDK 22.11.11`.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// Loads an IPv4 table; every route must be taken. `groups`: extension groups.
    pub fn load4(
        &mut self,
        routes: impl IntoIterator<Item = (Prefix<u32>, NextHopId)>,
        groups: u32,
    ) -> io::Result<()> {
        let records = routes.into_iter().map(|(prefix, next_hop)| {
            let mut record = [0; 12];
            record[..4].copy_from_slice(&prefix.addr().to_ne_bytes());
            record[4..8].copy_from_slice(&u32::from(prefix.len()).to_ne_bytes());
            record[8..].copy_from_slice(&next_hop.to_ne_bytes());
            record
        });
        self.hand_over("load4", records, &groups.to_string()).map(drop)
    }

    /// Loads an IPv6 table; every route must be taken. `groups`: extension groups.
    pub fn load6(
        &mut self,
        routes: impl IntoIterator<Item = (Prefix<u128>, NextHopId)>,
        groups: u32,
    ) -> io::Result<()> {
        let records = routes.into_iter().map(|(prefix, next_hop)| {
            let mut record = [0; 24];
            record[..16].copy_from_slice(&prefix.addr().to_be_bytes());
            record[16..20].copy_from_slice(&u32::from(prefix.len()).to_ne_bytes());
            record[20..].copy_from_slice(&next_hop.to_ne_bytes());
            record
        });
        self.hand_over("load6", records, &groups.to_string()).map(drop)
    }

    /// Hands over the IPv4 keys of a round.
    pub fn keys4(&mut self, keys: &[u32]) -> io::Result<()> {
        self.hand_over("keys4", keys.iter().map(|key| key.to_ne_bytes()), "").map(drop)
    }

    /// Hands over the IPv6 keys of a round.
    pub fn keys6(&mut self, keys: &[Key6]) -> io::Result<()> {
        let records = keys.iter().map(|key| {
            let mut record = [0; 16];
            record[..8].copy_from_slice(&key[0].to_be_bytes());
            record[8..].copy_from_slice(&key[1].to_be_bytes());
            record
        });
        self.hand_over("keys6", records, "").map(drop)
    }

    /// Chooses a lookup function ([`Family::variants`]); an error when the processor lacks it.
    pub fn variant(&mut self, family: Family, name: &str) -> io::Result<()> {
        self.ask(&format!("variant{} {name}", family.digit())).map(drop)
    }

    /// One pass over the keys, `burst` (at most 4,096) at a time.
    pub fn round(&mut self, family: Family, burst: usize) -> io::Result<Round> {
        let answer = self.ask(&format!("round{} {burst}", family.digit()))?;
        parse_round(&answer)
    }

    /// The [`hash`] over the peer's answers to all keys.
    pub fn check(&mut self, family: Family) -> io::Result<u64> {
        let answer = self.ask(&format!("check{}", family.digit()))?;
        u64::from_str_radix(&answer, 16)
            .map_err(|_| io::Error::other(format!("the peer answered `{answer}`")))
    }

    /// Resident memory, and how much of it is on huge pages, both in bytes.
    pub fn pages(&mut self) -> io::Result<(u64, u64)> {
        let answer = self.ask("pages")?;
        let pages = answer.split_once(' ').and_then(|(resident, huge)| {
            Some((resident.parse::<u64>().ok()? * 1024, huge.parse::<u64>().ok()? * 1024))
        });
        pages.ok_or_else(|| io::Error::other(format!("the peer answered `{answer}`")))
    }

    /// Has `rte_hash_peer` fill its table with `count` keys of `bytes` bytes.
    pub fn hash_table(&mut self, bytes: usize, count: usize, seed: u64) -> io::Result<()> {
        self.ask(&format!("table {bytes} {count} {seed}")).map(drop)
    }

    /// Has it choose `count` of them to look up.
    pub fn hash_keys(&mut self, count: usize, seed: u64) -> io::Result<()> {
        self.ask(&format!("keys {count} {seed}")).map(drop)
    }

    /// One pass over them, `burst` (at most 64) at a time.
    pub fn hash_round(&mut self, burst: usize) -> io::Result<Round> {
        let answer = self.ask(&format!("round {burst}"))?;
        parse_round(&answer)
    }

    /// The [`hash_bytes`] over its answers.
    pub fn hash_check(&mut self) -> io::Result<u64> {
        let answer = self.ask("check")?;
        u64::from_str_radix(&answer, 16)
            .map_err(|_| io::Error::other(format!("the peer answered `{answer}`")))
    }

    /// Has `rte_acl_peer` build a table of rules, the best first, as its source says; the seconds that the build
    /// took, and the bytes of the tables that lookups read.
    pub fn acl_rules(&mut self, rules: impl Iterator<Item = [u8; 24]>) -> io::Result<(f64, u64)> {
        let answer = self.hand_over("load", rules, "")?;
        let figures = answer
            .split_once(' ')
            .and_then(|(seconds, bytes)| Some((seconds.parse().ok()?, bytes.parse().ok()?)));
        figures.ok_or_else(|| io::Error::other(format!("the peer answered `{answer}`")))
    }

    /// Hands over the headers of a round, as its source says.
    pub fn acl_headers(&mut self, headers: impl Iterator<Item = [u8; 16]>) -> io::Result<()> {
        self.hand_over("keys", headers, "").map(drop)
    }

    /// Chooses a lookup function of `rte_acl` ([`ACL_VARIANTS`]).
    pub fn acl_variant(&mut self, name: &str) -> io::Result<()> {
        self.ask(&format!("variant {name}")).map(drop)
    }

    /// One pass over the headers, `burst` (at most 4,096) at a time.
    pub fn acl_round(&mut self, burst: usize) -> io::Result<Round> {
        let answer = self.ask(&format!("round {burst}"))?;
        parse_round(&answer)
    }

    /// The [`hash`] over its answers.
    pub fn acl_check(&mut self) -> io::Result<u64> {
        self.hash_check()
    }

    /// Where files may lie for the peer; it is gone with this value.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Has `nids_peer` read all frames of a capture; how many these are.
    pub fn nids_load(&mut self, path: &Path) -> io::Result<u64> {
        let answer = self.ask(&format!("load {}", path.display()))?;
        answer.parse().map_err(|_| io::Error::other(format!("the peer answered `{answer}`")))
    }

    /// One pass of libnids over them, with a table for so many connections, with or without the checksums of TCP: seconds
    /// that its thread ran; connections, and the bytes of their clients and servers.
    pub fn nids_round(
        &mut self,
        connections: usize,
        checksums: bool,
    ) -> io::Result<(f64, [u64; 3])> {
        let answer = self.ask(&format!("round {connections} {}", u8::from(checksums)))?;
        parse_streams(&answer, |word| word.parse().ok())
    }

    /// The same, and the hash over all bytes that its source describes in place of the time.
    pub fn nids_check(
        &mut self,
        connections: usize,
        checksums: bool,
    ) -> io::Result<(u64, [u64; 3])> {
        let answer = self.ask(&format!("check {connections} {}", u8::from(checksums)))?;
        parse_streams(&answer, |word| u64::from_str_radix(word, 16).ok())
    }

    /// Has `vectorscan_peer` compile these literals.
    pub fn vectorscan_load<'a>(
        &mut self,
        literals: impl Iterator<Item = &'a [u8]>,
    ) -> io::Result<()> {
        let mut bytes = Vec::new();
        for literal in literals {
            bytes.extend((literal.len() as u32).to_ne_bytes());
            bytes.extend(literal);
        }
        self.hand_over("load", std::iter::once(bytes), "").map(drop)
    }

    /// Hands over packets of `size` bytes, one after the other.
    pub fn vectorscan_packets(&mut self, packets: &[u8], size: usize) -> io::Result<()> {
        self.hand_over("packets", std::iter::once(packets), &size.to_string()).map(drop)
    }

    /// One pass over them; the sum is the number of matches.
    pub fn vectorscan_round(&mut self) -> io::Result<Round> {
        let answer = self.ask("round")?;
        parse_round(&answer)
    }

    /// Puts records into a file, has the peer read it, and takes it away.
    fn hand_over<R: AsRef<[u8]>>(
        &mut self,
        command: &str,
        records: impl Iterator<Item = R>,
        more: &str,
    ) -> io::Result<String> {
        let path = self.folder.join(command);
        let mut file = BufWriter::new(std::fs::File::create(&path)?);
        for record in records {
            file.write_all(record.as_ref())?;
        }
        file.into_inner().map_err(io::IntoInnerError::into_error)?;
        let result = self.ask(&format!("{command} {} {more}", path.display()));
        std::fs::remove_file(&path)?;
        result
    }

    fn ask(&mut self, command: &str) -> io::Result<String> {
        writeln!(self.commands, "{command}")?;
        self.commands.flush()?;
        self.answer()
    }

    fn answer(&mut self) -> io::Result<String> {
        let mut line = String::new();
        if self.answers.read_line(&mut line)? == 0 {
            return Err(io::Error::other("the peer ended"));
        }
        match line.trim_end().split_once(' ').unwrap_or((line.trim_end(), "")) {
            ("ok", rest) => Ok(rest.to_owned()),
            (_, rest) => Err(io::Error::other(format!("the peer: {rest}"))),
        }
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // What cannot be ended or taken away is gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn parse_round(answer: &str) -> io::Result<Round> {
    let round = answer.split_once(' ').and_then(|(seconds, sum)| {
        Some(Round { seconds: seconds.parse().ok()?, sum: sum.parse().ok()? })
    });
    round.ok_or_else(|| io::Error::other(format!("the peer answered `{answer}`")))
}

/// A word of its own, connections, bytes of clients and of servers.
fn parse_streams<T>(answer: &str, first: impl Fn(&str) -> Option<T>) -> io::Result<(T, [u64; 3])> {
    let mut words = answer.split(' ');
    let mut parse = || {
        let first = first(words.next()?)?;
        let mut number = || words.next()?.parse().ok();
        Some((first, [number()?, number()?, number()?]))
    };
    parse().ok_or_else(|| io::Error::other(format!("the peer answered `{answer}`")))
}

/// FNV-1a over answers of 8 bytes, little-endian: what [`Peer::hash_check`] returns.
pub fn hash_bytes(answers: impl IntoIterator<Item = u64>) -> u64 {
    answers.into_iter().flat_map(u64::to_le_bytes).fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

/// FNV-1a over answers in order, each as 4 bytes little-endian: what [`Peer::check`] returns.
pub fn hash(answers: impl IntoIterator<Item = NextHopId>) -> u64 {
    answers.into_iter().flat_map(u32::to_le_bytes).fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}
