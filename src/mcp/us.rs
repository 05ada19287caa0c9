//! What we are to a server: a client that tells a workspace's servers where the workspace is, and refuses the rest.
#![expect(deprecated, reason = "roots are on their way out of MCP, and today's servers ask for them")]

use std::path::Path;

use rmcp::model::{
    ClientCapabilities, ClientConfig, ErrorData, Implementation, ListRootsResult, Root, RootsCapabilities,
};
use rmcp::service::RequestContext;
use rmcp::{ClientHandler, RoleClient};

/// The client. Servers that belong to no workspace are shared by all, so that there is no root to tell them.
pub(super) struct Us {
    root: Option<Root>,
}

impl Us {
    pub(super) fn new(workspace: Option<&Path>) -> Self {
        let url = workspace.and_then(|workspace| reqwest::Url::from_directory_path(workspace).ok());
        Self { root: url.map(|url| Root::new(url.as_str().trim_end_matches('/'))) }
    }
}

impl ClientHandler for Us {
    fn get_info(&self) -> ClientConfig {
        let mut capabilities = ClientCapabilities::default();
        capabilities.roots = self.root.as_ref().map(|_| RootsCapabilities::default());
        ClientConfig::new(capabilities, Implementation::new("dshd", env!("CARGO_PKG_VERSION")))
    }

    async fn list_roots(&self, _: RequestContext<RoleClient>) -> Result<ListRootsResult, ErrorData> {
        Ok(ListRootsResult::new(self.root.iter().cloned().collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_workspaces_server_is_told_its_root_and_others_are_told_of_none() {
        let us = Us::new(Some(Path::new("/a b")));
        assert_eq!(us.root.as_ref().unwrap().uri, "file:///a%20b");
        assert!(us.get_info().capabilities.roots.is_some());
        let us = Us::new(None);
        assert!(us.root.is_none() && us.get_info().capabilities.roots.is_none());
        assert!(us.get_info().capabilities.sampling.is_none());
    }
}
