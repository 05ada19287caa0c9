//! One connection's life: reader, writer, bounded outbound queue, subscriptions.
