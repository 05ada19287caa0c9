//! `dshd models`: lists configured models.

pub(super) mod check;

use clap::Args;
use serde::Serialize;

use self::check::Check;
use super::table::Table;
use super::{Failure, Globals, exit, human, output, reach, refusal, tell};
use crate::config::Loaded;
use crate::handler;
use crate::protocol::{Empty, Method, ModelInfo, ModelsResult, RouteModels};
use crate::provider::registry::Providers;

/// Stands for the models of a provider that lists none: they are sent as named.
const ANY: &str = "any";

/// Arguments of `dshd models`.
#[derive(Debug, Args)]
#[command(after_long_help = "EXAMPLES:
  dshd models
  dshd models --check
  dshd models --json")]
pub struct ModelsArgs {
    /// Ask each for a word, from here and with the keys that are here
    #[arg(long)]
    pub check: bool,
    /// Print no header
    #[arg(long)]
    pub no_header: bool,
}

#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    #[serde(flatten)]
    models: &'a ModelsResult,
    #[serde(skip_serializing_if = "Option::is_none")]
    checks: Option<&'a [Check]>,
}

pub(super) async fn run(args: ModelsArgs, globals: &Globals) -> Result<u8, Failure> {
    let loaded = globals.load()?;
    let models = list(globals, &loaded).await?;
    let checks = if args.check { Some(check::all(&models, globals, &loaded).await) } else { None };
    if globals.args.json {
        let document = Document { schema: "dshd.models/1", models: &models, checks: checks.as_deref() };
        output::print_json(&document)?;
    } else {
        output::print(&text(&models, checks.as_deref(), !args.no_header))?;
    }
    let is_well = checks.is_none_or(|checks| checks.iter().all(|check| check.ok));
    Ok(if is_well { exit::OK } else { exit::REFUSED })
}

/// What the daemon can call; without one, what it could.
async fn list(globals: &Globals, loaded: &Loaded) -> Result<ModelsResult, Failure> {
    match reach::viewer(globals, loaded).await {
        Ok(reached) => reached.call(Method::Models, &Empty {}).await,
        Err(failure) if failure.kind == refusal::NO_DAEMON => {
            tell::say("no dshd is running; this is what the configuration here says");
            let providers = Providers::of(loaded);
            Ok(handler::models::result(providers.default_route(), providers.routes()))
        }
        Err(failure) => Err(failure),
    }
}

fn text(models: &ModelsResult, checks: Option<&[Check]>, has_header: bool) -> String {
    let last = if checks.is_some() { "CHECK" } else { "CAN" };
    let mut table = Table::new(&["PROVIDER", "KEY", "MODEL", "CONTEXT", last], has_header);
    for route in &models.routes {
        let key = if route.ready { "ready" } else { "missing" };
        for (name, model) in rows(models, route) {
            let is_default =
                models.default_route.provider == route.provider && models.default_route.model == name;
            let last = match checks {
                Some(checks) => check::text(checks, &route.provider, name),
                None => model.map_or_else(String::new, |model| model.capabilities.join(" ")),
            };
            table.push(vec![
                route.provider.clone(),
                key.to_owned(),
                if is_default { format!("{name} (default)") } else { name.to_owned() },
                model.map_or_else(|| "-".to_owned(), |model| human::count(model.context_window)),
                last,
            ]);
        }
    }
    table.text()
}

/// A provider's models: those configured, and its default one if it is not among them; `any` when there are none.
fn rows<'a>(models: &'a ModelsResult, route: &'a RouteModels) -> Vec<(&'a str, Option<&'a ModelInfo>)> {
    let mut rows: Vec<(&str, Option<&ModelInfo>)> =
        route.models.iter().map(|model| (model.model.as_str(), Some(model))).collect();
    let general = &models.default_route;
    let general = (general.provider == route.provider).then_some(general.model.as_str());
    let default = general.or(route.default_model.as_deref());
    if let Some(default) = default.filter(|default| rows.iter().all(|(name, _)| name != default)) {
        rows.push((default, None));
    }
    if rows.is_empty() {
        rows.push((ANY, None));
    }
    rows
}
