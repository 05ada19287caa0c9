//! One file a method: submits in the reader's order, answers later.
