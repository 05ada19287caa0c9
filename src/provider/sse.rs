//! Server-sent events, decoded from any split of the bytes. Owns one reused buffer a stream; the adapters feed it.

use memchr::{memchr, memchr2};

/// Bytes of one event, and of one line.
pub(super) const EVENT_BYTES_MAX: usize = 16 * 1024 * 1024;

/// An event with data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Event<'a> {
    /// Its `data:` lines, joined by line feeds.
    pub(super) data: &'a [u8],
    /// Whether it was named `error`, or sent as an `error:` line (older llama.cpp).
    pub(super) is_error: bool,
}

/// An event is larger than [`EVENT_BYTES_MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an event of the stream is larger than 16 MiB")]
pub(super) struct TooLong;

/// The events of a stream that arrives in these pieces: each one's data, and whether it is an error. For fuzzing.
#[doc(hidden)]
pub fn events_of(pieces: &[&[u8]]) -> Vec<(Vec<u8>, bool)> {
    let (mut decoder, mut events) = (Decoder::default(), Vec::new());
    for piece in pieces {
        let fed = decoder.feed(piece, &mut |event| {
            events.push((event.data.to_vec(), event.is_error));
            Ok::<_, TooLong>(())
        });
        if fed.is_err() {
            break;
        }
    }
    events
}

/// The state between two reads.
#[derive(Debug, Default)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "four facts of the grammar, each independent of the others"
)]
pub(super) struct Decoder {
    /// The start of a line whose end has not arrived.
    line: Vec<u8>,
    data: Vec<u8>,
    has_data: bool,
    is_error: bool,
    /// The last line ended in CR: a line feed that follows belongs to it.
    after_cr: bool,
    /// The first line is past: no byte order mark is expected.
    started: bool,
}

impl Decoder {
    /// Decodes what has arrived; events come in order, until one fails.
    ///
    /// # Errors
    /// [`TooLong`], or what `on_event` returned.
    pub(super) fn feed<E: From<TooLong>>(
        &mut self,
        mut input: &[u8],
        on_event: &mut impl FnMut(Event<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        while !input.is_empty() {
            if std::mem::take(&mut self.after_cr) && input[0] == b'\n' {
                input = &input[1..];
                continue;
            }
            let Some(end) = memchr2(b'\n', b'\r', input) else {
                return Ok(self.keep(input)?);
            };
            self.after_cr = input[end] == b'\r';
            if self.line.is_empty() {
                self.take_line(&input[..end], on_event)?;
            } else {
                self.keep(&input[..end])?;
                let mut line = std::mem::take(&mut self.line);
                let taken = self.take_line(&line, on_event);
                line.clear();
                self.line = line;
                taken?;
            }
            input = &input[end + 1..];
        }
        Ok(())
    }

    /// The stream has ended: gives the last event, if its empty line is all that is missing.
    ///
    /// # Errors
    /// As [`Self::feed`].
    pub(super) fn finish<E: From<TooLong>>(
        &mut self,
        on_event: &mut impl FnMut(Event<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        self.feed(b"\n\n", on_event)
    }

    fn keep(&mut self, part: &[u8]) -> Result<(), TooLong> {
        if self.line.len() + part.len() > EVENT_BYTES_MAX {
            return Err(TooLong);
        }
        self.line.extend_from_slice(part);
        Ok(())
    }

    fn take_line<E: From<TooLong>>(
        &mut self,
        mut line: &[u8],
        on_event: &mut impl FnMut(Event<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        if !std::mem::replace(&mut self.started, true) {
            line = line.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(line);
        }
        if line.is_empty() {
            let is_error = std::mem::take(&mut self.is_error);
            if !std::mem::take(&mut self.has_data) {
                return Ok(());
            }
            let done = on_event(Event { data: &self.data, is_error });
            self.data.clear();
            return done;
        }
        let (field, value) = match memchr(b':', line) {
            Some(colon) => (&line[..colon], &line[colon + 1..]),
            None => (line, &line[line.len()..]),
        };
        let value = value.strip_prefix(b" ").unwrap_or(value);
        match field {
            b"data" => self.add_data(value)?,
            b"event" => self.is_error = value == b"error",
            b"error" => {
                self.is_error = true;
                self.add_data(value)?;
            }
            _ => {}
        }
        Ok(())
    }

    fn add_data(&mut self, value: &[u8]) -> Result<(), TooLong> {
        if self.data.len() + value.len() >= EVENT_BYTES_MAX {
            return Err(TooLong);
        }
        if std::mem::replace(&mut self.has_data, true) {
            self.data.push(b'\n');
        }
        self.data.extend_from_slice(value);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn events_of(parts: &[&[u8]]) -> Result<Vec<(String, bool)>, TooLong> {
        let mut events = Vec::new();
        let mut decoder = Decoder::default();
        let mut on_event = |event: Event<'_>| {
            events.push((String::from_utf8(event.data.to_vec()).unwrap(), event.is_error));
            Ok::<(), TooLong>(())
        };
        for part in parts {
            decoder.feed(part, &mut on_event)?;
        }
        decoder.finish(&mut on_event)?;
        Ok(events)
    }

    fn check(text: &str, expected: &[&str]) {
        let events = events_of(&[text.as_bytes()]).unwrap();
        assert_eq!(events.iter().map(|(data, _)| data.as_str()).collect::<Vec<_>>(), expected, "{text:?}");
    }

    #[test]
    fn every_line_ending_ends_a_line() {
        check("data: a\n\ndata: b\r\n\r\ndata: c\r\rdata: d\n\n", &["a", "b", "c", "d"]);
    }

    #[test]
    fn comments_unknown_fields_and_empty_events_say_nothing() {
        check(": keep-alive\n\n:\n\nid: 1\nretry: 5\n\ndata: a\n: x\n\nevent: ping\n\n", &["a"]);
    }

    #[test]
    fn several_data_lines_are_one_event() {
        check("data: a\ndata:\ndata: b\n\n", &["a\n\nb"]);
    }

    #[test]
    fn the_space_after_the_colon_may_be_missing() {
        check("data:{\"a\": 1}\n\ndata:  b\n\ndata\n\n", &["{\"a\": 1}", " b", ""]);
    }

    #[test]
    fn a_byte_order_mark_is_dropped_at_the_start_only() {
        check("\u{feff}data: a\n\n\u{feff}data: b\n\n", &["a"]);
    }

    #[test]
    fn the_last_event_needs_no_empty_line() {
        check("data: a\n\ndata: [DONE]", &["a", "[DONE]"]);
    }

    #[test]
    fn errors_are_told_by_event_name_and_by_field() {
        let events = events_of(&[b"event: error\ndata: x\n\nerror: {\"code\":500}\n\ndata: a\n\n"]).unwrap();
        let expected = [("x", true), ("{\"code\":500}", true), ("a", false)];
        assert_eq!(events, expected.map(|(data, error)| (data.to_owned(), error)));
    }

    #[test]
    fn an_event_over_the_cap_is_refused_however_it_is_cut() {
        let half = vec![b'a'; EVENT_BYTES_MAX / 2];
        assert_eq!(events_of(&[b"data: ", &half, &half, b"a\n\n"]), Err(TooLong));
        assert_eq!(events_of(&[b"data: ", &half, b"\ndata: ", &half, b"\n\n"]), Err(TooLong));
    }

    proptest! {
        #[test]
        fn any_split_of_the_bytes_gives_the_same_events(cuts in prop::collection::vec(0usize..100, 0..8)) {
            let text = "\u{feff}: hi\r\ndata: {\"a\":\"那🙂\"}\r\n\r\nevent: error\rdata: x\rdata: y\r\rdata: [DONE]\n\n";
            let bytes = text.as_bytes();
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut % bytes.len()).collect();
            cuts.extend([0, bytes.len()]);
            cuts.sort_unstable();
            let parts: Vec<&[u8]> = cuts.windows(2).map(|pair| &bytes[pair[0]..pair[1]]).collect();
            prop_assert_eq!(events_of(&parts), events_of(&[bytes]));
        }
    }
}
