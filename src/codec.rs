//! Bytes into lines and lines into bytes; knows no JSON.
