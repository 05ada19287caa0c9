//! The files by which a workspace brings servers of its own, and which of them may be used.
//!
//! A file is code of whoever wrote it: nothing in it is started before the user has said that it may.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::trust::{Trust, TrustBook, digest};
use crate::config::{McpServer, check_mcp_server, workspace_mcp_servers};

/// Ours first: it wins where both name a server.
const FILES: [&str; 2] = [".dshd/mcp.toml", ".mcp.json"];
/// Largest such file.
const FILE_BYTES_MAX: u64 = 256 << 10;
/// Servers of one workspace.
const SERVERS_MAX: usize = 64;

/// What is trusted.
#[derive(Clone, Debug, Default)]
pub struct Trusting {
    /// `mcp.trusted_workspaces`.
    pub workspaces: Vec<PathBuf>,
    /// What `dshd mcp trust` wrote; none without a data directory.
    pub book: Option<TrustBook>,
}

/// Whether a file may be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// The configuration trusts the workspace.
    Configured,
    /// The book trusts the file as it is.
    Trusted,
    /// The book trusts what it was.
    Changed,
    /// Nobody has said so.
    Untrusted,
}

impl Standing {
    /// Whether it may.
    pub fn may_run(self) -> bool {
        match self {
            Self::Configured | Self::Trusted => true,
            Self::Changed | Self::Untrusted => false,
        }
    }
}

/// A workspace's file.
#[derive(Clone, Debug)]
pub struct WorkspaceFile {
    /// Where, its directory resolved.
    pub path: PathBuf,
    /// Its content's SHA-256.
    pub digest: String,
    /// Whether it may be used.
    pub standing: Standing,
    /// Its servers, or what is wrong with it.
    pub servers: Result<BTreeMap<String, McpServer>, String>,
}

/// A workspace that has such files.
#[derive(Clone, Debug)]
pub struct Workspace {
    /// Where, resolved.
    pub directory: PathBuf,
    /// Its files.
    pub files: Vec<WorkspaceFile>,
}

impl Workspace {
    /// The files for a directory: those in it, else those of the nearest directory above it in the same repository.
    /// Blocks.
    pub fn of(cwd: &Path, trusting: &Trusting) -> Option<Self> {
        let cwd = cwd.canonicalize().ok()?;
        let repository = cwd.ancestors().find(|above| above.join(".git").exists());
        let has_file = |directory: &Path| FILES.iter().any(|name| directory.join(name).exists());
        let within = |above: &&Path| repository.map_or(**above == *cwd, |root| above.starts_with(root));
        let directory = cwd.ancestors().take_while(within).find(|above| has_file(above))?;
        let files = FILES.iter().filter_map(|name| read(&directory.join(name), directory, trusting));
        Some(Self { directory: directory.to_path_buf(), files: files.collect() })
    }

    /// Where the files of a directory would be.
    pub fn file_paths(directory: &Path) -> Vec<PathBuf> {
        FILES.iter().map(|name| directory.join(name)).collect()
    }

    /// The servers of the files that may be used.
    pub fn trusted_servers(&self) -> BTreeMap<String, McpServer> {
        let mut servers = BTreeMap::new();
        for file in self.files.iter().rev().filter(|file| file.standing.may_run()) {
            if let Ok(own) = &file.servers {
                servers.extend(own.clone());
            }
        }
        while servers.len() > SERVERS_MAX {
            servers.pop_last();
        }
        servers
    }
}

/// A file that is there, with what is wrong with it.
fn read(path: &Path, directory: &Path, trusting: &Trusting) -> Option<WorkspaceFile> {
    let bytes = match read_bytes(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
        Err(error) => {
            return Some(WorkspaceFile {
                path: path.to_path_buf(),
                digest: String::new(),
                standing: Standing::Untrusted,
                servers: Err(format!("cannot read {}: {error}", path.display())),
            });
        }
    };
    let digest = digest(&bytes);
    let standing = match standing(path, directory, &digest, trusting) {
        Ok(standing) => standing,
        Err(error) => {
            let servers = Err(error);
            return Some(WorkspaceFile {
                path: path.to_path_buf(),
                digest,
                standing: Standing::Untrusted,
                servers,
            });
        }
    };
    let text = String::from_utf8(bytes).map_err(|_| format!("{} is no UTF-8", path.display()));
    let servers = text.and_then(|text| parse(path, &text));
    Some(WorkspaceFile { path: path.to_path_buf(), digest, standing, servers })
}

fn standing(path: &Path, directory: &Path, digest: &str, trusting: &Trusting) -> Result<Standing, String> {
    let is_directory = |workspace: &PathBuf| workspace.canonicalize().is_ok_and(|one| one == directory);
    if trusting.workspaces.iter().any(is_directory) {
        return Ok(Standing::Configured);
    }
    let Some(book) = &trusting.book else { return Ok(Standing::Untrusted) };
    match book.look_up(path, digest) {
        Ok(Trust::Trusted) => Ok(Standing::Trusted),
        Ok(Trust::Changed) => Ok(Standing::Changed),
        Ok(Trust::Unknown) => Ok(Standing::Untrusted),
        Err(error) => Err(error.to_string()),
    }
}

/// Reads a regular file of bounded size; a pipe in its place does not make us wait.
fn read_bytes(path: &Path) -> io::Result<Vec<u8>> {
    let flags = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    let file = fs::OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(io::Error::other("it is no regular file"));
    }
    let mut bytes = Vec::new();
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(io::Error::other(format!("it has more than {FILE_BYTES_MAX} bytes")));
    }
    Ok(bytes)
}

fn parse(path: &Path, text: &str) -> Result<BTreeMap<String, McpServer>, String> {
    if path.extension().is_some_and(|extension| extension == "toml") {
        return workspace_mcp_servers(path, text).map_err(|error| match error.help() {
            Some(help) => format!("{error} ({help})"),
            None => error.to_string(),
        });
    }
    let file: JsonFile =
        serde_json::from_str(text).map_err(|error| format!("{}: {error}", path.display()))?;
    let read = |(name, server): (String, JsonServer)| {
        let server = server.read();
        let checked = server.and_then(|server| check_mcp_server(&name, &server).map(|()| server));
        match checked {
            Ok(server) => Ok((name, server)),
            Err(error) => Err(format!("{}: server \"{name}\": {error}", path.display())),
        }
    };
    file.servers.into_iter().map(read).collect()
}

/// `.mcp.json` as other programs write it. What they put beside these keys is theirs.
#[derive(Deserialize)]
struct JsonFile {
    #[serde(rename = "mcpServers", default)]
    servers: BTreeMap<String, JsonServer>,
}

#[derive(Deserialize)]
struct JsonServer {
    #[serde(rename = "type")]
    kind: Option<String>,
    command: Option<String>,
    #[serde(default)]
    args: Vec<String>,
    #[serde(default)]
    env: BTreeMap<String, String>,
    cwd: Option<PathBuf>,
    url: Option<String>,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    #[serde(default)]
    disabled: bool,
}

impl JsonServer {
    fn read(self) -> Result<McpServer, String> {
        match self.kind.as_deref() {
            None | Some("stdio" | "http" | "streamable-http" | "streamableHttp") => {}
            Some(other) => return Err(format!("\"type\" is \"{other}\"; \"stdio\" and \"http\" are known")),
        }
        Ok(McpServer {
            command: self.command,
            args: self.args,
            env: self.env,
            cwd: self.cwd,
            url: self.url,
            headers: self.headers,
            enabled: !self.disabled,
            ..McpServer::default()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Place {
        dir: tempfile::TempDir,
        trusting: Trusting,
    }

    fn place(files: &[(&str, &str)]) -> Place {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = dir.path().join("w").join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let book = Some(TrustBook::new(dir.path()));
        Place { dir, trusting: Trusting { workspaces: Vec::new(), book } }
    }

    impl Place {
        fn look(&self, below: &str) -> Option<Workspace> {
            Workspace::of(&self.dir.path().join("w").join(below), &self.trusting)
        }

        fn standing(&self) -> Standing {
            self.look("").unwrap().files[0].standing
        }
    }

    const TOML: &str = "[mcp.servers.a]\ncommand = \"one\"\n";
    const JSON: &str =
        r#"{"mcpServers":{"a":{"command":"two"},"b":{"type":"http","url":"http://x/"}},"more":1}"#;

    #[test]
    fn a_file_that_nobody_trusts_gives_no_server() {
        let place = place(&[(".mcp.json", JSON)]);
        let workspace = place.look("").unwrap();
        assert_eq!(workspace.files[0].standing, Standing::Untrusted);
        assert!(workspace.trusted_servers().is_empty());
    }

    #[test]
    fn a_file_that_changes_is_untrusted_again() {
        let place = place(&[(".mcp.json", JSON)]);
        let file = place.look("").unwrap().files.remove(0);
        place.trusting.book.as_ref().unwrap().trust(&file.path, &file.digest).unwrap();
        assert_eq!(place.standing(), Standing::Trusted);
        fs::write(&file.path, r#"{"mcpServers":{}}"#).unwrap();
        assert_eq!(place.standing(), Standing::Changed);
    }

    #[test]
    fn the_configuration_trusts_a_workspace_whatever_its_files_say() {
        let mut place = place(&[(".dshd/mcp.toml", TOML), (".mcp.json", JSON)]);
        place.trusting.workspaces.push(place.dir.path().join("w/../w"));
        let servers = place.look("").unwrap().trusted_servers();
        assert_eq!(servers["a"].command.as_deref(), Some("one"), "our file wins");
        assert_eq!(servers["b"].url.as_deref(), Some("http://x/"));
    }

    #[test]
    fn the_nearest_file_of_the_repository_counts() {
        let place = place(&[(".git/HEAD", ""), (".mcp.json", JSON), ("sub/deep/x", "")]);
        assert!(place.look("sub/deep").is_some());
        fs::write(place.dir.path().join("w/sub/.mcp.json"), "{}").unwrap();
        assert!(place.look("sub/deep").unwrap().directory.ends_with("w/sub"));
    }

    #[test]
    fn outside_a_repository_only_the_directory_itself_counts() {
        let place = place(&[(".mcp.json", JSON), ("sub/x", "")]);
        assert!(place.look("").is_some());
        assert!(place.look("sub").is_none());
    }

    #[test]
    fn what_is_wrong_with_a_file_is_told() {
        let place = place(&[(".dshd/mcp.toml", "[mcp.servers.a]\ncomand = \"x\"\n"), (".mcp.json", "{")]);
        let files = place.look("").unwrap().files;
        let wrong: Vec<String> = files.into_iter().map(|file| file.servers.unwrap_err()).collect();
        assert!(wrong[0].contains("did you mean `mcp.servers.a.command`?"), "{wrong:?}");
        assert!(wrong[1].contains(".mcp.json: EOF"), "{wrong:?}");
        let sse = r#"{"mcpServers":{"a":{"type":"sse","url":"http://x/"}}}"#;
        assert!(parse(Path::new("/w/.mcp.json"), sse).unwrap_err().contains("\"type\" is \"sse\""));
    }

    #[test]
    fn a_pipe_or_a_huge_file_in_its_place_is_no_trap() {
        let place = place(&[(".mcp.json", &"x".repeat(300_000))]);
        assert!(place.look("").unwrap().files[0].servers.as_ref().unwrap_err().contains("more than"));
        let path = place.dir.path().join("w/.mcp.json");
        fs::remove_file(&path).unwrap();
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &path,
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::from(0o600),
            0,
        )
        .unwrap();
        assert!(place.look("").unwrap().files[0].servers.as_ref().unwrap_err().contains("no regular file"));
    }
}
