//! What decodes as an event encodes to an event that decodes to the same bytes.

use dshd::event::SessionEvent;

#[test]
fn event() {
    bolero::check!().for_each(|json: &[u8]| {
        if let Ok(event) = SessionEvent::decode(json) {
            let once = event.encode().unwrap();
            let twice = SessionEvent::decode(&once).unwrap().encode().unwrap();
            assert_eq!(once, twice);
        }
    });
}
