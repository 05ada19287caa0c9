//! One turn: model step, tool calls, again, end.
