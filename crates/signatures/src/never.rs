//! Contents that no buffer of their kind can have: such a rule never matches, and is refused, as in Suricata.

use crate::{Buffer, Check, Content, Inspection, Transform};

/// Why checks of a buffer never hold.
pub(crate) fn fault(inspection: &Inspection) -> Option<String> {
    size_fault(inspection)
        .or_else(|| host_fault(inspection))
        .or_else(|| method_fault(inspection))
        .or_else(|| transform_fault(inspection))
}

fn contents(inspection: &Inspection) -> impl Iterator<Item = &Content> {
    inspection.checks.iter().filter_map(|check| match check {
        Check::Content(content) => Some(content),
        _ => None,
    })
}

/// Uppercase letters in a host, which engines give in lowercase.
fn host_fault(inspection: &Inspection) -> Option<String> {
    if inspection.buffer != Buffer::HttpHost || !inspection.transforms.is_empty() {
        return None;
    }
    inspection.checks.iter().find_map(|check| match check {
        Check::Content(content) if !content.nocase => {
            let has_capital = content.bytes.iter().any(u8::is_ascii_uppercase);
            has_capital.then(|| {
                "http.host is lowercase; a content with uppercase letters never matches".into()
            })
        }
        _ => None,
    })
}

/// A bsize that excludes a content of the same buffer.
fn size_fault(inspection: &Inspection) -> Option<String> {
    let most = inspection.checks.iter().filter_map(|check| match check {
        Check::Bsize(size) => Some(size.bounds().map_or(0, |(_, high)| high)),
        _ => None,
    });
    let most = most.min()?;
    inspection.checks.iter().find_map(|check| match check {
        Check::Content(content) if !content.negated && content.bytes.len() as u64 > most => {
            Some(format!("bsize excludes the content ({} bytes)", content.bytes.len()))
        }
        _ => None,
    })
}

/// A space at an end of a method, which has none.
fn method_fault(inspection: &Inspection) -> Option<String> {
    if inspection.buffer != Buffer::HttpMethod || !inspection.transforms.is_empty() {
        return None;
    }
    let is_space = |byte: Option<&u8>| matches!(byte, Some(b' ' | b'\t'));
    let mut own = contents(inspection);
    let found = own.any(|own| is_space(own.bytes.first()) || is_space(own.bytes.last()));
    found.then(|| "a method has no space; a content with one at an end never matches".into())
}

/// Bytes that the transforms before take away.
fn transform_fault(inspection: &Inspection) -> Option<String> {
    use Transform::*;
    // The last transforms of case and of white space that still apply.
    let (mut case, mut space) = (None, None);
    for transform in &inspection.transforms {
        match transform {
            ToLowercase | ToUppercase => case = Some(transform),
            StripWhitespace | CompressWhitespace if space != Some(&StripWhitespace) => {
                space = Some(transform);
            }
            StripWhitespace | CompressWhitespace | DotPrefix => {}
            _ => (case, space) = (None, None),
        }
    }
    let is_space = |byte: &u8| byte.is_ascii_whitespace() || *byte == 0x0b;
    let clash = |own: &Content| {
        let has = |test: fn(&u8) -> bool| own.bytes.iter().any(test);
        match case {
            Some(ToLowercase) if !own.nocase && has(u8::is_ascii_uppercase) => {
                return Some("to_lowercase leaves no uppercase letters");
            }
            Some(ToUppercase) if !own.nocase && has(u8::is_ascii_lowercase) => {
                return Some("to_uppercase leaves no lowercase letters");
            }
            _ => {}
        }
        match space {
            Some(StripWhitespace) if own.bytes.iter().any(is_space) => {
                Some("strip_whitespace leaves no white space")
            }
            Some(CompressWhitespace)
                if own.bytes.windows(2).any(|pair| pair.iter().all(is_space)) =>
            {
                Some("compress_whitespace leaves no two spaces in a row")
            }
            _ => None,
        }
    };
    let reason = contents(inspection).filter(|own| !own.negated).find_map(clash)?;
    Some(format!("{reason}; the content never matches"))
}
