//! Layers and their order, places, profiles.

use std::fs;

use super::*;
use crate::config::ProviderKind;

struct Home {
    dir: tempfile::TempDir,
}

impl Home {
    fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap() }
    }

    fn write(&self, path: &str, text: &str) -> PathBuf {
        let path = self.dir.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        path
    }

    fn environment(&self, variables: &[(&str, &str)]) -> Environment {
        let home = self.dir.path().to_str().unwrap();
        Environment::of([("HOME", home)].into_iter().chain(variables.iter().copied()))
    }

    fn load(&self, variables: &[(&str, &str)], flags: &Flags) -> Loaded {
        load(&self.environment(variables), flags).unwrap()
    }
}

const USER: &str = ".config/dshd/dshd.toml";

#[test]
fn later_layers_win_and_each_value_knows_its_place() {
    let home = Home::new();
    let system = home.write("etc/dshd.toml", "[turn]\nmax_steps = 9\n[log]\nfiles_kept = 9\n");
    let user = home.write(USER, "[log]\nlevel = \"warn\"\n[turn]\nmax_steps = 1\nrepeat_stop = 21\n");
    let named = home.write("more.toml", "[turn]\nmax_steps = 2\nrepeat_remind = 4\n");
    let flags =
        Flags { config: Some(named.clone()), log_level: Some("debug".to_owned()), ..Flags::default() };
    let environment =
        home.environment(&[("DSHD_TURN__MAX_STEPS", "3"), ("DSHD_LOG", "error")]).with_system_config(&system);
    let loaded = load(&environment, &flags).unwrap();
    assert_eq!(loaded.config.log.files_kept, 9);
    assert_eq!(loaded.config.turn.max_steps, 3);
    assert_eq!(loaded.config.turn.repeat_remind, 4);
    assert_eq!(loaded.config.turn.repeat_stop, 21);
    assert_eq!(loaded.config.log.level, "debug");
    let source = |key: &str| loaded.source(key).to_string();
    assert_eq!(source("turn.max_steps"), "DSHD_TURN__MAX_STEPS");
    assert_eq!(source("turn.repeat_remind"), format!("{}:3", named.display()));
    assert_eq!(source("turn.repeat_stop"), format!("{}:5", user.display()));
    assert_eq!(source("log.level"), "--log-level");
    assert_eq!(source("limits.mailbox"), "default");
    assert_eq!(source("log.files_kept"), format!("{}:4", system.display()));
    assert_eq!(loaded.paths.files, [system, user, named]);
}

#[test]
fn a_table_adds_to_a_built_in_provider_and_a_list_replaces() {
    let home = Home::new();
    home.write(
        USER,
        "[[listen]]\nunix = \"/a\"\n[providers.anthropic]\nmax_retries = 1\n[providers.anthropic.models.m]\nimages = true\n",
    );
    let named = home.write("more.toml", "[[listen]]\nunix = \"/b\"\n");
    let loaded = home.load(&[], &Flags { config: Some(named), ..Flags::default() });
    let anthropic = &loaded.config.providers["anthropic"];
    assert_eq!((anthropic.kind, anthropic.max_retries), (ProviderKind::Anthropic, 1));
    assert_eq!(anthropic.api_key_env.as_deref(), Some("ANTHROPIC_API_KEY"));
    assert!(anthropic.models["m"].images);
    assert_eq!(loaded.config.listen, [Listen::unix("/b")]);
    assert_eq!(loaded.config.providers.len(), 4);
}

#[test]
fn a_wrong_value_is_refused_although_a_later_layer_hides_it() {
    let home = Home::new();
    home.write(USER, "[turn]\nmax_steps = \"all\"\n");
    let environment = home.environment(&[("DSHD_TURN__MAX_STEPS", "3")]);
    let error = load(&environment, &Flags::default()).unwrap_err().to_string();
    assert!(error.contains("dshd.toml:2: `turn.max_steps`"), "{error}");
}

#[test]
fn data_and_socket_have_their_places() {
    let home = Home::new();
    let loaded = home.load(&[("XDG_RUNTIME_DIR", "/run/user/7")], &Flags::default());
    let data = home.dir.path().join(".local/state/dshd");
    assert_eq!(loaded.config.data_dir, Some(data.clone()));
    assert_eq!(loaded.paths.tokens, data.join("tokens.toml"));
    assert_eq!(loaded.config.listen, [Listen::unix("/run/user/7/dshd/dshd.sock")]);
}

#[test]
fn a_relative_path_is_taken_from_its_file_or_the_working_directory() {
    let home = Home::new();
    home.write(USER, "data_dir = \"data\"\n[providers.scripted]\nscript = \"~/play.json\"\n");
    let loaded = home.load(&[], &Flags::default());
    assert_eq!(loaded.paths.data_dir, home.dir.path().join(".config/dshd/data"));
    assert_eq!(loaded.config.providers["scripted"].script, Some(home.dir.path().join("play.json")));
    let environment = home.environment(&[("DSHD_DATA_DIR", "here")]).in_directory("/srv");
    assert_eq!(load(&environment, &Flags::default()).unwrap().paths.data_dir, Path::new("/srv/here"));
    let flags = Flags { data_dir: Some("there".into()), ..Flags::default() };
    assert_eq!(load(&environment, &flags).unwrap().paths.data_dir, Path::new("/srv/there"));
}

#[test]
fn without_a_home_data_must_be_placed() {
    let environment = Environment::default();
    assert!(matches!(load(&environment, &Flags::default()), Err(ConfigError::NoDataDirectory)));
    let flags = Flags { data_dir: Some("/data".into()), ..Flags::default() };
    assert_eq!(load(&environment, &flags).unwrap().paths.socket, Path::new("/data/run/dshd.sock"));
}

#[test]
fn the_sdk_profile_has_the_official_runtimes_defaults() {
    let home = Home::new();
    let flags = Flags { profile: Profile::Sdk, ..Flags::default() };
    let loaded = home.load(&[("DSH_HOME", "/dsh"), ("DSH_PERMISSION_MODE", "danger-full-access")], &flags);
    let deepseek = &loaded.config.providers["deepseek-official"];
    assert_eq!(deepseek.kind, ProviderKind::Anthropic);
    assert_eq!(deepseek.base_url.as_deref(), Some("https://api.deepseek.com/anthropic"));
    assert_eq!(loaded.config.default_provider.as_deref(), Some("deepseek-official"));
    assert_eq!(loaded.config.limits.in_flight, 1024);
    assert_eq!(loaded.config.sessions.permission_mode, crate::event::PermissionMode::FullAccess);
    assert_eq!(loaded.paths.data_dir, Path::new("/dsh/dshd"));
    assert!(!loaded.deltas);
    let variables = [
        ("DSHD_DELTAS", "1"),
        ("DSHD_PROVIDERS__DEEPSEEK_OFFICIAL__KIND", "chat"),
        ("DEEPSEEK_BASE_URL", "http://m"),
    ];
    let loaded = home.load(&variables, &flags);
    assert!(loaded.deltas);
    let deepseek = &loaded.config.providers["deepseek-official"];
    assert_eq!((deepseek.kind, deepseek.base_url.as_deref()), (ProviderKind::Chat, Some("http://m")));
}

#[test]
fn an_empty_variable_changes_nothing() {
    let home = Home::new();
    let loaded = home.load(&[("DSHD_TURN__MAX_STEPS", ""), ("DSHD_DATA_DIR", "")], &Flags::default());
    assert_eq!(loaded.config.turn.max_steps, 200);
}
