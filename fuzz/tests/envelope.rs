//! Any line is a request, nothing, or answered; a request's id is echoed as one line of valid JSON.

use dshd::rpc::{Inbound, parse, response};

#[test]
fn envelope() {
    bolero::check!().for_each(|line: &[u8]| {
        let id = match parse(line) {
            Inbound::Request(request) => Some(request.id),
            Inbound::Bad { id, .. } => id,
            Inbound::Nothing => return,
        };
        let reply = response(id.as_ref(), Ok(&()));
        assert_eq!(reply.iter().filter(|byte| **byte == b'\n').count(), 1);
        assert!(std::str::from_utf8(&reply).is_ok());
    });
}
