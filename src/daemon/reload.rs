//! SIGHUP: reads the configuration again. A bad file changes nothing.

use std::sync::Arc;

use jiff::Timestamp;

use super::core::Core;
use super::with_sources;
use crate::config;
use crate::telemetry;

/// Reads the configuration, certificates and tokens again.
pub(super) fn reload(core: &mut Core) {
    configuration(core);
    for certificate in &core.certificates {
        if let Err(error) = certificate.reload() {
            tracing::error!(error = with_sources(&error), "the certificate stays as it was");
        }
    }
    core.service.tokens.end_revoked(Timestamp::now());
}

/// Reads it again and puts in force what can change in a process that serves.
fn configuration(core: &mut Core) {
    let mut loaded = match config::reload(&core.loaded) {
        Ok(loaded) => loaded,
        Err(error) => {
            tracing::error!(error = with_sources(&error), "the configuration stays as it was");
            return;
        }
    };
    for warning in &loaded.warnings {
        tracing::warn!("{warning}");
    }
    for key in config::changed_but_fixed(&core.loaded.config, &loaded.config) {
        tracing::warn!("{key} takes effect at the next start");
    }
    // Where the daemon is does not change under those who ask it.
    loaded.config.data_dir.clone_from(&core.loaded.config.data_dir);
    loaded.config.listen.clone_from(&core.loaded.config.listen);
    if let Err(error) = telemetry::apply(&loaded.config) {
        tracing::error!(%error, "the log level stays as it was");
    }
    core.config.send_replace(Arc::new(loaded.config.clone()));
    core.runtime.reload(&loaded);
    core.loaded = loaded;
    tracing::info!("the configuration was read again");
}
