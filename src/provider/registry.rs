//! The providers by name: what is built in, what is configured, who has a key.

use std::sync::Arc;

use super::Provider;
use crate::config::{Config, ModelConfig};

/// A configured model for `models/list`.
#[derive(Clone, Debug)]
pub struct Model {
    /// Its name.
    pub name: String,
    /// What it can do and costs.
    pub abilities: ModelConfig,
}

/// A provider for `models/list`.
#[derive(Clone, Debug)]
pub struct Route {
    /// Its name.
    pub provider: String,
    /// Whether a key is there, or none is needed.
    pub ready: bool,
    /// Its configured models.
    pub models: Vec<Model>,
}

/// Why a route can't be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RouteError {
    /// No such provider.
    #[error("unknown provider {name}; configured: {known}")]
    Unknown {
        /// What was asked for.
        name: String,
        /// What there is.
        known: String,
    },
    /// No key.
    #[error("provider {name} has no key; {remedy}")]
    NoKey {
        /// Which provider.
        name: String,
        /// What to do.
        remedy: String,
    },
}

/// All providers. Cheap to clone; rebuilt on reload.
#[derive(Clone)]
pub struct Providers {
    _private: (),
}

impl Providers {
    /// Reads keys and builds the table. HTTP clients are built on first use.
    pub fn from_config(_config: &Config) -> Self {
        unimplemented!()
    }

    /// The default route: (provider, model).
    pub fn default_route(&self) -> (String, String) {
        unimplemented!()
    }

    /// Checks that a provider exists and has its key.
    ///
    /// # Errors
    /// [`RouteError`].
    pub fn check(&self, _provider: &str) -> Result<(), RouteError> {
        unimplemented!()
    }

    /// The provider, for a call. One without key is returned too; its calls fail with `MISSING_CREDENTIAL`.
    ///
    /// # Errors
    /// [`RouteError::Unknown`].
    pub fn get(&self, _provider: &str) -> Result<Arc<dyn Provider>, RouteError> {
        unimplemented!()
    }

    /// What a model can do; defaults for one that is not configured.
    pub fn abilities(&self, _provider: &str, _model: &str) -> ModelConfig {
        unimplemented!()
    }

    /// How often and after which first pause a provider's failed calls are made again.
    pub fn retry_policy(&self, _provider: &str) -> super::retry::RetryPolicy {
        unimplemented!()
    }

    /// For `models/list`.
    pub fn routes(&self) -> Vec<Route> {
        unimplemented!()
    }
}
