//! What the operator may choose: `--backend auto|cpu|sim|opencl[:N]|cuda[:N]`.

use std::fmt;
use std::str::FromStr;

use crate::driver::Api;

/// Where jobs are shaded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Backend {
    /// On a GPU if one answers its self-test, else on the CPU.
    #[default]
    Auto,
    /// On the CPU.
    Cpu,
    /// On the OpenCL device of this number.
    OpenCl(u32),
    /// On the CUDA device of this number.
    Cuda(u32),
    /// On the simulated device, for tests and benches.
    Sim,
}

impl Backend {
    /// The library and number of the device that is named; `None` for the others.
    pub fn device(self) -> Option<(Api, u32)> {
        match self {
            Backend::OpenCl(number) => Some((Api::OpenCl, number)),
            Backend::Cuda(number) => Some((Api::Cuda, number)),
            Backend::Auto | Backend::Cpu | Backend::Sim => None,
        }
    }
}

/// A text that names no backend.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{text}` is not a backend: expected auto, cpu, sim, opencl, opencl:N, cuda or cuda:N, with N counted from 0"
)]
pub struct BackendError {
    text: String,
}

impl FromStr for Backend {
    type Err = BackendError;

    fn from_str(text: &str) -> Result<Self, BackendError> {
        let wrong = || BackendError { text: text.to_owned() };
        let (name, number) = text.split_once(':').map_or((text, None), |(n, d)| (n, Some(d)));
        // `parse` alone would take a sign.
        let digits = number.unwrap_or("0");
        let is_number = digits.bytes().all(|b| b.is_ascii_digit());
        let number_of_device = digits.parse().ok().filter(|_| is_number).ok_or_else(wrong);
        match (name, number) {
            ("auto", None) => Ok(Backend::Auto),
            ("cpu", None) => Ok(Backend::Cpu),
            ("sim", None) => Ok(Backend::Sim),
            ("opencl", _) => number_of_device.map(Backend::OpenCl),
            ("cuda", _) => number_of_device.map(Backend::Cuda),
            _ => Err(wrong()),
        }
    }
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Backend::Auto => f.write_str("auto"),
            Backend::Cpu => f.write_str("cpu"),
            Backend::Sim => f.write_str("sim"),
            Backend::OpenCl(number) => write!(f, "opencl:{number}"),
            Backend::Cuda(number) => write!(f, "cuda:{number}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_and_written() {
        for (text, backend, shown) in [
            ("auto", Backend::Auto, "auto"),
            ("cpu", Backend::Cpu, "cpu"),
            ("sim", Backend::Sim, "sim"),
            ("opencl", Backend::OpenCl(0), "opencl:0"),
            ("opencl:12", Backend::OpenCl(12), "opencl:12"),
            ("cuda", Backend::Cuda(0), "cuda:0"),
            ("cuda:1", Backend::Cuda(1), "cuda:1"),
        ] {
            assert_eq!(text.parse(), Ok(backend));
            assert_eq!(backend.to_string(), shown);
            assert_eq!(shown.parse(), Ok(backend));
        }
    }

    #[test]
    fn other_texts_give_what_was_expected() {
        for text in [
            "",
            "gpu",
            "CUDA",
            "cuda:",
            "cuda:x",
            "cuda:-1",
            "cuda:+1",
            "cuda:1:2",
            "cpu:0",
            "auto:1",
            "opencl:4294967296",
            " cpu",
        ] {
            let error = text.parse::<Backend>().unwrap_err().to_string();
            assert!(error.contains(&format!("`{text}`")) && error.contains("cuda:N"), "{error}");
        }
    }
}
