//! A line of the control socket: a request that is accepted is read back as written, and a response
//! is.
#![no_main]

use control::api::{
    Request, Response,
    answer::{json, text},
};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|line: &[u8]| {
    if let Ok(request) = serde_json::from_slice::<Request>(line) {
        let written = serde_json::to_vec(&request).expect("a request is JSON");
        assert_eq!(serde_json::from_slice::<Request>(&written).expect("as written"), request);
    }
    if let Ok(response) = serde_json::from_slice::<Response>(line) {
        let written = serde_json::to_vec(&response).expect("a response is JSON");
        let _ = (text(vec![response.clone()]), json(vec![response.clone()]));
        assert_eq!(serde_json::from_slice::<Response>(&written).expect("as written"), response);
    }
});
