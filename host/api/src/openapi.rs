//! The OpenAPI 3.1 document, made from the handlers and bodies themselves.

use std::collections::BTreeMap;

use axum::Extension;
use axum::body::Bytes;
use axum::http::header;
use axum::response::{IntoResponse as _, Response};
use utoipa::openapi::path::{ParameterBuilder, ParameterIn, PathItem};
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::openapi::{ContentBuilder, Ref, RefOr, ResponseBuilder};
use utoipa::{IntoResponses, Modify, OpenApi};

use crate::refusal::ErrorBody;

#[derive(OpenApi)]
#[openapi(
    info(title = "sutler", description = "Provisions what a control plane asks for, by plugins that can do only what they were granted."),
    components(schemas(ErrorBody)),
    modifiers(&Bearer),
    security(("bearer" = []))
)]
pub(crate) struct Document;

struct Bearer;

impl Modify for Bearer {
    fn modify(&self, openapi: &mut utoipa::openapi::OpenApi) {
        let bearer = SecurityScheme::Http(HttpBuilder::new().scheme(HttpAuthScheme::Bearer).build());
        openapi.components.get_or_insert_with(Default::default).add_security_scheme("bearer", bearer);
    }
}

/// How a call can break, on every route with a caller.
pub(crate) struct CallErrors;

impl IntoResponses for CallErrors {
    fn responses() -> BTreeMap<String, RefOr<utoipa::openapi::Response>> {
        let one = |(status, description): (&str, &str)| {
            let content = ContentBuilder::new().schema(Some(Ref::from_schema_name("ErrorBody"))).build();
            let response =
                ResponseBuilder::new().description(description).content("application/json", content).build();
            (status.to_owned(), RefOr::T(response))
        };
        [
            ("400", "The request is not valid; `path` says where"),
            ("401", "No token, or one that is not known"),
            ("403", "The token is not for this tenant, instance or API; `quota-exceeded`: it would take more than a quota leaves"),
            ("404", "There is no such thing"),
            ("405", "The route takes another method; see Allow"),
            ("406", "None of the media types in Accept can be answered"),
            ("408", "The body came too slowly"),
            ("413", "The body is too large"),
            ("415", "The body is not application/json"),
            ("500", "The host broke; its operator finds out why by X-Request-Id"),
            ("503", "Too much at once, stopping, or something it needs is away; see Retry-After"),
        ]
        .into_iter()
        .map(one)
        .collect()
    }
}

/// Describes every path a second time, under a prefix with one parameter.
pub(crate) fn also_under(
    mut document: utoipa::openapi::OpenApi,
    prefix: &str,
    parameter: &str,
    description: &str,
) -> utoipa::openapi::OpenApi {
    let parameter = ParameterBuilder::new()
        .name(parameter)
        .parameter_in(ParameterIn::Path)
        .required(utoipa::openapi::Required::True)
        .description(Some(description))
        .schema(Some(utoipa::openapi::Object::with_type(utoipa::openapi::Type::String)))
        .build();
    let again = |(path, item): (&String, &PathItem)| {
        let mut item = item.clone();
        item.parameters.get_or_insert_default().push(RefOr::T(parameter.clone()));
        for operation in [&mut item.get, &mut item.post].into_iter().flatten() {
            // An operation's id is unique.
            operation.operation_id = operation.operation_id.take().map(|id| format!("{id}_of_instance"));
        }
        (format!("{prefix}{path}"), item)
    };
    let more: Vec<_> = document.paths.paths.iter().map(again).collect();
    document.paths.paths.extend(more);
    document
}

/// The finished document.
#[derive(Clone)]
pub(crate) struct Rendered(pub(crate) Bytes);

/// This document.
#[utoipa::path(get, path = "/openapi.json", tag = "health", security(()),
    responses((status = 200, description = "The OpenAPI document of this listener", body = Object)))]
pub(crate) async fn openapi(Extension(Rendered(bytes)): Extension<Rendered>) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], bytes).into_response()
}
