//! Whatever stands in a configuration file, loading it says what is wrong or gives a configuration; it never panics.

use dshd::config::{Environment, Flags, load};

const FRAMES: [&str; 4] = ["", "[limits]\n", "[[listen]]\n", "[providers.x]\n"];
const KEYS: [&str; 6] = ["in_flight = ", "line_bytes = ", "tcp = ", "unix = ", "kind = ", "headers = "];

#[test]
fn config() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("dshd.toml");
    let flags = Flags { config: Some(path.clone()), ..Flags::default() };
    let environment = Environment::of([("HOME", home.path().to_str().unwrap())]).in_directory(home.path());
    bolero::check!().with_type::<(u8, u8, Vec<u8>)>().for_each(|(frame, key, bytes)| {
        let frame = FRAMES[usize::from(*frame) % FRAMES.len()];
        let key = KEYS.get(usize::from(*key) % (KEYS.len() + 1)).copied().unwrap_or("");
        std::fs::write(&path, [frame.as_bytes(), key.as_bytes(), bytes].concat()).unwrap();
        let _ = load(&environment, &flags);
    });
}
