//! `dshd models`: lists configured models.

use clap::Args;
use serde::Serialize;

use super::table::Table;
use super::{Failure, Globals, exit, human, output, reach};
use crate::protocol::{Empty, Method, ModelInfo, ModelsResult, RouteModels};

/// Arguments of `dshd models`.
#[derive(Debug, Args)]
#[command(after_long_help = "EXAMPLES:
  dshd models
  dshd models --check
  dshd models --json")]
pub struct ModelsArgs {
    /// Ask each for a word
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
}

pub(super) async fn run(args: ModelsArgs, globals: &Globals) -> Result<u8, Failure> {
    let loaded = globals.load()?;
    let reached = reach::viewer(globals, &loaded).await?;
    let models: ModelsResult = reached.call(Method::Models, &Empty {}).await?;
    if globals.args.json {
        output::print_json(&Document { schema: "dshd.models/1", models: &models })?;
    } else {
        output::print(&text(&models, !args.no_header))?;
    }
    Ok(exit::OK)
}

fn text(models: &ModelsResult, has_header: bool) -> String {
    let mut table = Table::new(&["PROVIDER", "KEY", "MODEL", "CONTEXT", "CAN"], has_header);
    for route in &models.routes {
        let key = if route.ready { "ready" } else { "missing" };
        let mut push = |model: String, context: String, can: String| {
            table.push(vec![route.provider.clone(), key.to_owned(), model, context, can]);
        };
        for model in &route.models {
            push(
                name(models, route, model),
                human::count(model.context_window),
                model.capabilities.join(" "),
            );
        }
        let default = &models.default_route;
        let is_listed = route.models.iter().any(|model| model.model == default.model);
        if default.provider == route.provider && !is_listed {
            push(format!("{} (default)", default.model), "-".to_owned(), String::new());
        } else if route.models.is_empty() {
            push("any".to_owned(), "-".to_owned(), String::new());
        }
    }
    table.text()
}

fn name(models: &ModelsResult, route: &RouteModels, model: &ModelInfo) -> String {
    let default = &models.default_route;
    if default.provider == route.provider && default.model == model.model {
        format!("{} (default)", model.model)
    } else {
        model.model.clone()
    }
}
