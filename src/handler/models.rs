//! `models/list`: the configured routes, their models, what these can do and cost.

use std::sync::Arc;

use super::Started;
use super::caller::Caller;
use crate::config::ModelConfig;
use crate::protocol::{ModelInfo, ModelsResult, Prices, RouteInfo, RouteModels};
use crate::provider::registry::{Model, Route};

/// Tells them.
pub fn start(caller: &Arc<Caller>) -> Started {
    let runtime = &caller.shared.runtime;
    Started::now(&result(runtime.default_route(), runtime.routes()))
}

/// The result for a default route (provider, model) and all routes; `dshd models` says the same without a daemon.
pub fn result((provider, model): (String, String), routes: Vec<Route>) -> ModelsResult {
    let routes = routes.into_iter().map(route).collect();
    ModelsResult { default_route: RouteInfo { provider, model }, routes }
}

fn route(route: Route) -> RouteModels {
    RouteModels {
        provider: route.provider,
        ready: route.ready,
        models: route.models.into_iter().map(model).collect(),
        default_model: route.default_model,
    }
}

fn model(model: Model) -> ModelInfo {
    let abilities = model.abilities;
    ModelInfo {
        model: model.name,
        context_window: abilities.context_window,
        max_output: abilities.max_output,
        capabilities: capabilities(&abilities),
        prices: prices(&abilities),
    }
}

fn capabilities(abilities: &ModelConfig) -> Vec<String> {
    let known = [
        ("tools", abilities.tools),
        ("thinking", abilities.thinking),
        ("reasoning-effort", abilities.reasoning_effort),
        ("images", abilities.images),
    ];
    known.into_iter().filter(|(_, has)| *has).map(|(name, _)| name.to_owned()).collect()
}

fn prices(abilities: &ModelConfig) -> Option<Prices> {
    let prices = Prices {
        input: abilities.price_input,
        cache_read: abilities.price_cache_read,
        cache_write: abilities.price_cache_write,
        output: abilities.price_output,
    };
    let none = Prices { input: None, cache_read: None, cache_write: None, output: None };
    (prices != none).then_some(prices)
}
