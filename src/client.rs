//! A typed client of the protocol, for the command line, tests, benches and embedders.
