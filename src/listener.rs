//! Where peers come in: TCP, Unix sockets, stdio; hands out streams with who is at the other end.
