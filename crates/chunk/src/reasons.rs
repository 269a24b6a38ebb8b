//! Why packets are dropped: reasons with stable codes, declared by the crate or module that drops.
//!
//! A [`DropReason`] is a code of 16 bits. Codes come in blocks of 256; a crate that drops packets declares a block with
//! [`drop_reasons!`](crate::drop_reasons) and writes the number of each reason down, so that a code keeps its
//! meaning when reasons come and go:
//!
//! ```text
//!   15      8 7       0
//!  ┌─────────┬─────────┐   block 0: this module, for workers and queues   2: results of lookups   4: switch
//!  │ block   │ number  │         1: link layer and IP                     3: router               5: firewall
//!  └─────────┴─────────┘         6: named data                          255: stages of tests
//! ```
//!
//! A process knows the blocks that were [registered](register): [`BLOCK`] always, those of its stages when an
//! engine starts. Names, texts and remedies are looked up there, off the data path. A code that no registered
//! block declares reads as [`UNKNOWN`].
//!
//! Threads: a lookup reads without a lock; registering takes one.

use std::fmt;
use std::sync::{Mutex, OnceLock, PoisonError};

/// Blocks that there can be.
pub const BLOCKS_MAX: usize = 256;

/// Why a packet was dropped: the code of a declared [`Reason`]. See the module for its encoding.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(transparent)]
pub struct DropReason(u16);

impl DropReason {
    /// The reason of this code, declared or not.
    #[inline]
    pub const fn from_code(code: u16) -> Self {
        DropReason(code)
    }

    /// Reason `number` of block `block`.
    pub const fn of(block: u8, number: u8) -> Self {
        DropReason((block as u16) << 8 | number as u16)
    }

    /// Its code.
    #[inline]
    pub const fn code(self) -> u16 {
        self.0
    }

    /// The number of its block.
    #[inline]
    pub const fn block(self) -> u8 {
        (self.0 >> 8) as u8
    }

    /// Its number in its block.
    #[inline]
    pub const fn number(self) -> u8 {
        self.0 as u8
    }

    /// Its declaration; `None` for a code that no registered block declares.
    pub fn declared(self) -> Option<&'static Reason> {
        block(self.block())?.reasons.iter().find(|reason| reason.code == self)
    }

    /// Its name in counters, in Prometheus labels and in `dropped.pcapng`: lower case, words joined by `_`.
    pub fn name(self) -> &'static str {
        self.declared().map_or("unknown", |reason| reason.name)
    }

    /// What it means, one sentence for people.
    pub fn text(self) -> &'static str {
        self.declared_or_unknown().text
    }

    /// What an operator can do about it, one or two sentences.
    pub fn remedy(self) -> &'static str {
        self.declared_or_unknown().remedy
    }

    fn declared_or_unknown(self) -> &'static Reason {
        self.declared().unwrap_or(&BLOCK.reasons[0])
    }
}

impl fmt::Debug for DropReason {
    /// The name, or the code if nothing is known by it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.declared() {
            Some(reason) => f.write_str(reason.name),
            None => write!(f, "reason {}", self.0),
        }
    }
}

/// The declaration of a drop reason.
#[derive(Debug, PartialEq, Eq)]
pub struct Reason {
    code: DropReason,
    name: &'static str,
    text: &'static str,
    remedy: &'static str,
}

impl Reason {
    /// Declares a reason; [`drop_reasons!`](crate::drop_reasons) does it.
    pub const fn new(
        code: DropReason,
        name: &'static str,
        text: &'static str,
        remedy: &'static str,
    ) -> Self {
        Self { code, name, text, remedy }
    }

    /// The code that verdicts carry.
    pub const fn code(&self) -> DropReason {
        self.code
    }

    /// See [`DropReason::name`].
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// See [`DropReason::text`].
    pub const fn text(&self) -> &'static str {
        self.text
    }

    /// See [`DropReason::remedy`].
    pub const fn remedy(&self) -> &'static str {
        self.remedy
    }
}

/// The reasons of one declarer.
#[derive(Debug, PartialEq, Eq)]
pub struct ReasonBlock {
    number: u8,
    name: &'static str,
    reasons: &'static [Reason],
}

impl ReasonBlock {
    /// Block `number`, called `name`, with these reasons in any order.
    ///
    /// # Panics
    /// When a number or a name is given twice, when a reason belongs to another block, when a name has other
    /// characters than `a` to `z`, `0` to `9` and `_`, when a sentence is empty. For a block that is a constant,
    /// that is an error of the compiler.
    pub const fn new(number: u8, name: &'static str, reasons: &'static [Reason]) -> Self {
        let mut i = 0;
        while i < reasons.len() {
            let reason = &reasons[i];
            assert!(reason.code.block() == number, "a reason belongs to another block");
            assert!(
                is_name(reason.name),
                "the name of a reason has other characters than a-z, 0-9 and _"
            );
            assert!(!reason.text.is_empty(), "a reason has no text");
            assert!(!reason.remedy.is_empty(), "a reason does not say what to do about it");
            let mut j = 0;
            while j < i {
                assert!(reasons[j].code.0 != reason.code.0, "a number is given to two reasons");
                assert!(!is_same(reasons[j].name, reason.name), "a name is given to two reasons");
                j += 1;
            }
            i += 1;
        }
        Self { number, name, reasons }
    }

    /// Its number, the high byte of its codes.
    pub const fn number(&self) -> u8 {
        self.number
    }

    /// Who drops for these reasons.
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// Its reasons, as they are declared.
    pub const fn reasons(&self) -> &'static [Reason] {
        self.reasons
    }
}

const fn is_name(name: &str) -> bool {
    let bytes = name.as_bytes();
    let mut i = 0;
    while i < bytes.len() {
        if !matches!(bytes[i], b'a'..=b'z' | b'0'..=b'9' | b'_') {
            return false;
        }
        i += 1;
    }
    i > 0
}

/// `==` on strings, which is not const.
const fn is_same(a: &str, b: &str) -> bool {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    if a.len() != b.len() {
        return false;
    }
    let mut i = 0;
    while i < a.len() {
        if a[i] != b[i] {
            return false;
        }
        i += 1;
    }
    true
}

/// Declares a block of drop reasons: its number and who drops, then for each reason the constant, its number in
/// the block, its name in counters, what it means, and what an operator can do about it. The constants have type
/// [`DropReason`], the block is a `&'static` [`ReasonBlock`].
///
/// ```
/// chunk::drop_reasons! {
///     /// What the turnstile drops for.
///     pub const BLOCK: 200, "turnstile";
///
///     NO_TICKET = 0, "no_ticket", "the packet has no ticket", "Sell it one.";
///     TOO_LATE = 2, "too_late", "the gate was closed", "Open the gate earlier.";
/// }
/// assert_eq!(TOO_LATE.code(), 200 << 8 | 2);
/// assert_eq!(BLOCK.reasons()[1].name(), "too_late");
/// ```
///
/// A number, or a name, can be given once:
///
/// ```compile_fail
/// chunk::drop_reasons! {
///     /// What the turnstile drops for.
///     pub const BLOCK: 200, "turnstile";
///
///     NO_TICKET = 0, "no_ticket", "the packet has no ticket", "Sell it one.";
///     TOO_LATE = 0, "too_late", "the gate was closed", "Open the gate earlier.";
/// }
/// ```
#[macro_export]
macro_rules! drop_reasons {
    (
        $(#[$doc:meta])* $vis:vis const $block:ident: $number:literal, $who:literal;
        $($reason:ident = $place:literal, $name:literal, $text:literal, $remedy:literal;)*
    ) => {
        $(
            #[doc = concat!("`", $name, "`: ", $text, ".")]
            ///
            #[doc = $remedy]
            $vis const $reason: $crate::DropReason = $crate::DropReason::of($number, $place);
        )*

        $(#[$doc])*
        $vis const $block: &$crate::reasons::ReasonBlock = &$crate::reasons::ReasonBlock::new(
            $number,
            $who,
            &[$($crate::reasons::Reason::new($reason, $name, $text, $remedy),)*],
        );
    };
}

crate::drop_reasons! {
    /// What the engine and its queues drop for; always registered.
    pub const BLOCK: 0, "engine and queues";

    UNKNOWN = 0, "unknown", "a stage returned an undefined verdict",
        "Report it: a stage or a kernel has a defect. Run with `--backend cpu` to find out which.";
    NO_VERDICT = 1, "no_verdict", "the last stage passed the packet on, but there is no next stage",
        "End the pipeline with a stage that decides about every packet.";
    // Receive and transmit
    RX_FULL = 2, "rx_full", "the kernel's receive queue was full",
        "If `ctl show runtime` shows hardly any free cells, raise `cells` in `[system]`; otherwise raise `queues` of the port and `workers`. If all CPUs are busy, the machine is too slow for this load.";
    RX_NO_CELLS = 3, "rx_no_cells", "no cell was free at receive",
        "Raise `cells` in `[system]`; `ctl show runtime` names the worker that holds many packets.";
    RX_OVERSIZE = 4, "rx_oversize", "the frame is longer than the queue or all cells can hold",
        "Switch receive offloads off (`ethtool -K INTERFACE gro off lro off`), or lower the MTU of the sender.";
    RX_UNREADABLE = 5, "rx_unreadable", "the record is not a readable frame: unsupported link type or broken descriptor",
        "Check that the capture contains Ethernet frames and is not truncated; on a live port check the driver.";
    TX_FULL = 6, "tx_full", "the transmit queue was full",
        "More arrives for this port than it can send: use a faster port, more queues, or send less.";
    TX_OVERSIZE = 7, "tx_oversize", "the frame is longer than the port can send",
        "Raise the MTU of the port, or lower that of the ports that the frames come from.";
    TX_PORT_DOWN = 8, "tx_port_down", "the port is down or gone",
        "Set the interface up and check its cable (`ctl show interfaces`).";
    TX_FAILED = 9, "tx_failed", "the kernel, the driver or the file refused the frame",
        "See the log for the system error; check free disk space if packets go to a file.";
    TX_NO_PORT = 10, "tx_no_port", "the verdict names a port that does not exist",
        "Check routes and faces that name a port; if the configuration has the port, report a defect.";
    HOST_ABSENT = 11, "host_absent", "the packet is for the host, but the port has no twin",
        "Normal over captures. Give the port a twin (`twin = true`) if Linux should receive such packets.";
    RING_FULL = 12, "ring_full", "the ring to another worker was full",
        "One worker gets more packets than it can process (`ctl show runtime`): raise `workers` in `[system]`.";
    NO_CELLS = 13, "no_cells", "no cell was free for a packet that a stage had to make",
        "Raise `cells` in `[system]`.";
    FAULT_INJECTED = 14, "fault_injected", "lost by an injected fault (`fault` of a port)",
        "Remove `fault` from the port when the test is over.";
    STAGE_PANIC = 15, "stage_panic", "a stage panicked while processing the packet's chunk, or the worker no longer runs stages",
        "Report it with the log entry, which names stage and packet; restart to run the stages again.";
    AGAIN_TOO_OFTEN = 16, "again_too_often", "entered the pipeline again more often than allowed",
        "Look for a tunnel inside itself, or for stages that send packets to each other.";
    AGAIN_FULL = 17, "again_full", "too many packets wait to enter the pipeline again",
        "One worker gets more tunnelled packets or fragments than it can process: raise `workers` in `[system]`.";
    RX_OFFLOAD = 18, "rx_offload", "the sender left checksum or segmentation to its network card, and the frame cannot be finished here",
        "Switch the offload off at the sender, also for SCTP and for tunnels other than VXLAN, GENEVE, GRE and IP in IP (`ethtool -K INTERFACE tx off tso off gso off tx-udp-segmentation off`, at the interface that the tunnel uses); for AF_XDP ports, `backend = \"af_packet\"` helps too.";
}

/// Why a block cannot be registered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReasonClash {
    /// Two blocks have the same number.
    Block {
        /// Their number.
        number: u8,
        /// Name of the block that has it.
        first: &'static str,
        /// Name of the block that wants it.
        second: &'static str,
    },
    /// Two reasons have the same name.
    Name {
        /// Their name.
        name: &'static str,
        /// Code of the reason that has it, and the name of its block.
        first: (u16, &'static str),
        /// Code of the reason that wants it, and the name of its block.
        second: (u16, &'static str),
    },
}

impl fmt::Display for ReasonClash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReasonClash::Block { number, first, second } => write!(
                f,
                "two blocks of drop reasons have number {number}: \"{first}\" and \"{second}\""
            ),
            ReasonClash::Name { name, first, second } => write!(
                f,
                "two drop reasons are called `{name}`: {} of \"{}\" and {} of \"{}\"",
                first.0, first.1, second.0, second.1
            ),
        }
    }
}

impl std::error::Error for ReasonClash {}

/// The registered blocks.
struct Registry {
    blocks: [OnceLock<&'static ReasonBlock>; BLOCKS_MAX],
    registering: Mutex<()>,
}

static REGISTRY: Registry = Registry::new();

impl Registry {
    const fn new() -> Self {
        Self { blocks: [const { OnceLock::new() }; BLOCKS_MAX], registering: Mutex::new(()) }
    }

    fn block(&self, number: u8) -> Option<&'static ReasonBlock> {
        if number == BLOCK.number {
            return Some(BLOCK);
        }
        self.blocks[usize::from(number)].get().copied()
    }

    fn blocks(&self) -> impl Iterator<Item = &'static ReasonBlock> {
        (0..=u8::MAX).filter_map(|number| self.block(number))
    }

    fn register(&self, block: &'static ReasonBlock) -> Result<(), ReasonClash> {
        let _one_at_a_time = self.registering.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(there) = self.block(block.number) {
            let (number, first, second) = (block.number, there.name, block.name);
            let is_same = there == block;
            return if is_same {
                Ok(())
            } else {
                Err(ReasonClash::Block { number, first, second })
            };
        }
        for there in self.blocks() {
            for first in there.reasons {
                if let Some(second) = block.reasons.iter().find(|r| r.name == first.name) {
                    return Err(ReasonClash::Name {
                        name: first.name,
                        first: (first.code.0, there.name),
                        second: (second.code.0, block.name),
                    });
                }
            }
        }
        // The lock is held and the place was empty.
        self.blocks[usize::from(block.number)].get_or_init(|| block);
        Ok(())
    }

    fn all(&self) -> Vec<&'static Reason> {
        let mut all: Vec<_> = self.blocks().flat_map(|block| block.reasons).collect();
        all.sort_unstable_by_key(|reason| reason.code);
        all
    }
}

/// Makes the reasons of `block` known to the process. Registering a block again changes nothing.
///
/// # Errors
/// When another block has its number, or another reason one of its names; then nothing of it is registered.
pub fn register(block: &'static ReasonBlock) -> Result<(), ReasonClash> {
    REGISTRY.register(block)
}

/// The registered block of this number.
pub fn block(number: u8) -> Option<&'static ReasonBlock> {
    REGISTRY.block(number)
}

/// Every reason of every registered block, in order of code.
pub fn registered() -> Vec<&'static Reason> {
    REGISTRY.all()
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use proptest::prelude::*;

    use super::*;

    /// Names of the random blocks.
    const NAMES: [&str; 12] = [
        "name_0", "name_1", "name_2", "name_3", "name_4", "name_5", "name_6", "name_7", "name_8",
        "name_9", "name_10", "name_11",
    ];

    /// A block for as long as the process lives. The list knows them all, so that nothing counts as leaked.
    fn kept(block: ReasonBlock) -> &'static ReasonBlock {
        static ALL: Mutex<Vec<&'static ReasonBlock>> = Mutex::new(Vec::new());
        let block: &'static ReasonBlock = Box::leak(Box::new(block));
        ALL.lock().unwrap().push(block);
        block
    }

    mod red {
        crate::drop_reasons! {
            /// Numbers out of order, with gaps.
            pub(super) const BLOCK: 200, "red";
            LAST = 255, "red_last", "the last of its block", "Nothing.";
            FIRST = 3, "red_first", "the first of its block", "Nothing.";
        }
    }
    mod blue {
        crate::drop_reasons! {
            /// The number of another block.
            pub(super) const BLOCK: 200, "blue";
            ONE = 0, "blue_one", "a reason", "Nothing.";
        }
    }
    mod green {
        crate::drop_reasons! {
            /// A name of another block.
            pub(super) const BLOCK: 201, "green";
            OWN = 0, "green_own", "a reason", "Nothing.";
            FOREIGN = 1, "rx_full", "a reason of another block", "Nothing.";
        }
    }

    #[test]
    fn a_block_is_registered_once_and_read_by_code() {
        let registry = Registry::new();
        assert_eq!(registry.all().len(), BLOCK.reasons().len());
        assert_eq!(registry.register(red::BLOCK), Ok(()));
        assert_eq!(registry.register(red::BLOCK), Ok(()));
        assert_eq!(registry.register(BLOCK), Ok(()));
        let all = registry.all();
        assert!(all.is_sorted_by_key(|reason| reason.code()));
        let last: Vec<_> = all[all.len() - 2..].iter().map(|r| (r.code(), r.name())).collect();
        assert_eq!(last, [(red::FIRST, "red_first"), (red::LAST, "red_last")]);
        assert_eq!(red::LAST.code(), 0xc8ff);
    }

    #[test]
    fn a_clash_names_both() {
        let registry = Registry::new();
        registry.register(red::BLOCK).unwrap();
        let error = registry.register(blue::BLOCK).unwrap_err().to_string();
        assert_eq!(error, "two blocks of drop reasons have number 200: \"red\" and \"blue\"");
        let error = registry.register(green::BLOCK).unwrap_err().to_string();
        let expected = "two drop reasons are called `rx_full`: 2 of \"engine and queues\" and 51457 of \"green\"";
        assert_eq!(error, expected);
        assert_eq!(registry.block(201), None, "nothing of a refused block is registered");
    }

    #[test]
    fn an_unknown_code_reads_as_unknown() {
        let reason = DropReason::from_code(0xfe07);
        assert_eq!((reason.name(), reason.text()), ("unknown", UNKNOWN.text()));
        assert_eq!(reason.remedy(), UNKNOWN.remedy());
        assert_eq!(format!("{reason:?} {UNKNOWN:?}"), "reason 65031 unknown");
        assert_eq!(DropReason::from_code(0x00ff).declared(), None, "a gap of a registered block");
    }

    #[test]
    fn the_process_registers_while_others_read() {
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    assert!(["unknown", "red_first"].contains(&red::FIRST.name()));
                    register(red::BLOCK).unwrap();
                    assert_eq!(red::FIRST.name(), "red_first");
                });
            }
        });
        assert!(registered().iter().any(|reason| reason.code() == red::LAST));
        assert_eq!(block(200), Some(red::BLOCK));
    }

    #[test]
    #[should_panic(expected = "a name is given to two reasons")]
    fn a_name_given_twice_is_refused() {
        const TWICE: &[Reason] = &[
            Reason::new(DropReason::of(9, 0), "same", "a", "b"),
            Reason::new(DropReason::of(9, 1), "same", "a", "b"),
        ];
        ReasonBlock::new(9, "nine", TWICE);
    }

    #[test]
    #[should_panic(expected = "other characters")]
    fn a_name_that_no_label_may_have_is_refused() {
        const HYPHEN: &[Reason] = &[Reason::new(DropReason::of(9, 0), "No-Route", "a", "b")];
        ReasonBlock::new(9, "nine", HYPHEN);
    }

    proptest! {
        /// Against a plain list: blocks of random numbers and names, in random order.
        #[test]
        fn registering_agrees_with_a_list(
            wanted in prop::collection::vec((0u8..6, prop::collection::vec((0u8..8, 0u8..12), 0..4)), 0..12)
        ) {
            let registry = Registry::new();
            let mut list: Vec<(u16, String)> =
                BLOCK.reasons().iter().map(|r| (r.code().code(), r.name().to_owned())).collect();
            let mut blocks: Vec<&'static ReasonBlock> = vec![BLOCK];
            for (number, mut reasons) in wanted {
                reasons.sort_unstable();
                reasons.dedup_by_key(|(place, _)| *place);
                reasons.sort_unstable_by_key(|(_, name)| *name);
                reasons.dedup_by_key(|(_, name)| *name);
                let reason = |(place, name): (u8, u8)| {
                    Reason::new(DropReason::of(number, place), NAMES[usize::from(name)], "a", "b")
                };
                let reasons = &*reasons.into_iter().map(reason).collect::<Vec<_>>().leak();
                let block = kept(ReasonBlock::new(number, "any", reasons));
                let expected = match blocks.iter().find(|there| there.number() == number) {
                    Some(there) => *there == block,
                    None => !reasons.iter().any(|r| list.iter().any(|(_, name)| name == r.name())),
                };
                let is_new = expected && !blocks.iter().any(|there| there.number() == number);
                prop_assert_eq!(registry.register(block).is_ok(), expected);
                if is_new {
                    blocks.push(block);
                    list.extend(reasons.iter().map(|r| (r.code().code(), r.name().to_owned())));
                }
            }
            list.sort();
            let found: Vec<_> =
                registry.all().iter().map(|r| (r.code().code(), r.name().to_owned())).collect();
            prop_assert_eq!(found, list);
        }
    }
}
