//! Which routes there are.

use axum::extract::Request;
use axum::http::StatusCode;
use axum::middleware::from_fn_with_state;
use axum::routing::get;
use axum::{Extension, Router};
use sutler_model::Identifier;
use utoipa::OpenApi as _;
use utoipa::openapi::ServerBuilder;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::extract::OfInstance;
use crate::refusal::Refusal;
use crate::state::Api;
use crate::{admin, audit, edge, health, logs, openapi, operations, work};

/// Where the routes of one instance begin.
pub(crate) const INSTANCE: &str = "/instances/{instance}";

/// The provisioner API, for callers.
pub fn router(api: &Api) -> Router {
    let (work, described) = OpenApiRouter::with_openapi(openapi::Document::openapi())
        .routes(routes!(work::plan))
        .routes(routes!(work::apply))
        .routes(routes!(work::inspect))
        .routes(routes!(operations::list))
        .routes(routes!(operations::one))
        .routes(routes!(operations::events))
        .routes(routes!(audit::audit))
        .routes(routes!(health::handles))
        .routes(routes!(logs::logs))
        .split_for_parts();
    let of_instances = of_instances(api, &work, &described);
    // The same routes for one instance of the control plane each.
    let described = openapi::also_under(described, INSTANCE, "instance", "The instance of the control plane");
    let routes = OpenApiRouter::with_openapi(described)
        .routes(routes!(health::healthz))
        .routes(routes!(health::readyz))
        .routes(routes!(health::readyz_pair));
    let (rest, described) = routes.split_for_parts();
    finish(api, rest.merge(work.clone()).nest(INSTANCE, work).merge(of_instances), described)
}

/// The routes of each configured instance, under its base path, with a document of their own.
fn of_instances(api: &Api, work: &Router<Api>, described: &utoipa::openapi::OpenApi) -> Router<Api> {
    let config = &api.inner.config;
    let mut out = Router::new();
    for (name, path) in &config.instances {
        // `ApiConfig::check` has looked at the names.
        let Ok(instance) = Identifier::parse(name) else { continue };
        let mut document = described.clone();
        document.servers =
            Some(vec![ServerBuilder::new().url(format!("{}{path}", config.base_path)).build()]);
        let own = work
            .clone()
            .route("/openapi.json", get(openapi::openapi))
            .layer(Extension(openapi::Rendered(document.to_json().unwrap_or_default().into())))
            .layer(Extension(OfInstance(instance)));
        out = out.nest(path, own);
    }
    out
}

/// The admin API, for operators, on a listener of its own.
pub fn admin_router(api: &Api) -> Router {
    let routes = OpenApiRouter::with_openapi(openapi::Document::openapi())
        .routes(routes!(admin::plugins))
        .routes(routes!(admin::faults))
        .routes(routes!(admin::reload))
        .routes(routes!(audit::audit_all))
        .routes(routes!(admin::metrics))
        .routes(routes!(health::healthz));
    let (routes, described) = routes.split_for_parts();
    finish(api, routes, described)
}

fn finish(api: &Api, routes: Router<Api>, document: utoipa::openapi::OpenApi) -> Router {
    let itself = OpenApiRouter::with_openapi(document).routes(routes!(openapi::openapi));
    let (itself, mut document) = itself.split_for_parts();
    let base = api.inner.config.base_path.as_str();
    if !base.is_empty() {
        document.servers = Some(vec![ServerBuilder::new().url(base).build()]);
    }
    let rendered = openapi::Rendered(document.to_json().unwrap_or_default().into());
    let routes = routes.merge(itself.layer(Extension(rendered)));
    let routes = if base.is_empty() {
        routes
    } else {
        // What watches a process knows no base path.
        Router::new()
            .nest(base, routes)
            .route("/healthz", get(health::healthz))
            .route("/readyz", get(health::readyz))
    };
    routes
        .fallback(no_route)
        .method_not_allowed_fallback(other_method)
        .layer(from_fn_with_state(api.clone(), edge::edge))
        .with_state(api.clone())
}

async fn no_route(request: Request) -> Refusal {
    let path: String = request.uri().path().chars().take(80).collect();
    Refusal::not_found(format!("there is no route {path}; GET /openapi.json lists them"))
}

async fn other_method(request: Request) -> Refusal {
    let message = format!(
        "this route does not take {}; the Allow header says what it takes",
        request.method().as_str().chars().take(20).collect::<String>()
    );
    Refusal::new(StatusCode::METHOD_NOT_ALLOWED, "method-not-allowed", message)
}
