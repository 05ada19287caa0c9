//! A model's stream gives the same events wherever its bytes are cut.

use dshd::provider::sse_events;

#[test]
fn sse() {
    bolero::check!().with_type::<(Vec<u8>, u8, u8)>().for_each(|(bytes, first, second)| {
        let (left, rest) = bytes.split_at(usize::from(*first).min(bytes.len()));
        let (middle, right) = rest.split_at(usize::from(*second).min(rest.len()));
        assert_eq!(sse_events(&[left, middle, right]), sse_events(&[bytes]));
    });
}
