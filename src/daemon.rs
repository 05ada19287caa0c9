//! The composition root: builds the parts, walks the phases, owns the order of shutdown.
