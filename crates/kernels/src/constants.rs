//! Numbers that host and device share, written out as macros: defined once, in Rust.

use std::fmt::Write;

use chunk::{JobHeader, ReasonBlock, Verdict};

use crate::{image, reasons};

/// Place of `first` in a job's header, in words of four bytes.
const JOB_FIRST_WORD: usize = std::mem::offset_of!(JobHeader, first) / 4;

/// All shared constants as `#define` lines.
pub(crate) fn text() -> String {
    let mut text = String::new();
    let mut define = |name: &str, value: u32| {
        let _ = writeln!(text, "#define {name} {value:#x}u"); // writing to a String cannot fail
    };
    define("JOB_FIRST_WORD", JOB_FIRST_WORD as u32);
    define("JOB_AREAS_WORD", crate::job::AREAS_WORD as u32);
    define("IMAGE_MAGIC", image::MAGIC);
    define("IMAGE_MAGIC_WORD", image::MAGIC_WORD as u32);
    define("IMAGE_REGIONS_WORD", image::REGIONS_WORD as u32);
    define("IMAGE_DIRECTORY_WORD", image::DIRECTORY_WORD as u32);
    define("IMAGE_UNIT_BYTES", image::UNIT_BYTES as u32);
    define("VERDICT_NEXT", Verdict::NEXT.0);
    define("VERDICT_FORWARD", Verdict::forward(0).0);
    define("VERDICT_HOST", Verdict::host(0).0);
    define("VERDICT_DUMP", Verdict::DUMP.0);
    define("VERDICT_AGAIN", Verdict::again(0).0);
    for block in [chunk::reasons::BLOCK, reasons::BLOCK] {
        text += &drops(block);
    }
    text
}

/// The verdict of each reason of a block, as `#define DROP_…` lines.
pub(crate) fn drops(block: &ReasonBlock) -> String {
    let mut text = String::new();
    for reason in block.reasons() {
        let (name, verdict) = (reason.name().to_ascii_uppercase(), Verdict::drop(reason.code()));
        let _ = writeln!(text, "#define DROP_{name} {:#x}u", verdict.0); // cannot fail, as above
    }
    text
}

#[cfg(test)]
mod tests {
    /// The blocks that every kernel may name; those of applications come with their files.
    #[test]
    fn the_device_knows_drop_reasons_by_name() {
        let text = super::text();
        assert!(text.contains("#define DROP_NO_VERDICT 0x2000001u\n"));
        assert!(text.contains("#define DROP_BAD_LOOKUP 0x2000204u\n"));
        let all = [chunk::reasons::BLOCK, crate::reasons::BLOCK].map(|block| block.reasons().len());
        assert_eq!(text.matches("#define DROP_").count(), all.iter().sum());
    }
}
