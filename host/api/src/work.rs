//! `POST /plan`, `/apply`, `/inspect`.

use std::time::Duration;

use axum::extract::{Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use sutler_dispatch::Work;
use tracing::Instrument as _;

use crate::answer::{ApplyAnswer, InspectAnswer, PlanAnswer, json};
use crate::body;
use crate::extract::{CallerOf, TicketOf};
use crate::openapi::CallErrors;
use crate::operations::{self, AcceptedBody};
use crate::refusal::{ErrorBody, Refusal};
use crate::request::{ApplyBody, Envelope as _, InspectBody, PlanBody};
use crate::state::Api;

/// Say what apply would do; change nothing.
///
/// Two equal calls give equal answers.
#[utoipa::path(post, path = "/plan", tag = "provisioner", request_body = PlanBody,
    responses((status = 200, description = "The plan, or why the work failed", body = PlanAnswer), CallErrors))]
pub(crate) async fn plan(
    State(api): State<Api>,
    caller: CallerOf,
    request: Request,
) -> Result<Response, Refusal> {
    let (parts, bytes) = request.into_parts();
    let bytes = body::read(&parts, bytes, &api.inner.config).await?;
    let mut request = PlanBody::parse(&bytes, &api.inner.config)?.into_request()?;
    caller.admit(&mut request.application)?;
    let outcome = api.inner.provisioner.plan(request).await?;
    Ok(json(StatusCode::OK, &PlanAnswer::from(outcome)))
}

/// Do the work.
///
/// It is safe to repeat: a repeat is answered what the first call came to. Work that takes longer than a moment is
/// answered 202 and goes on, whatever becomes of the client or of this host: `GET /operations/{id}` tells.
#[utoipa::path(post, path = "/apply", tag = "provisioner", request_body = ApplyBody,
    responses((status = 200, description = "What was reached, or why the work failed", body = ApplyAnswer),
        (status = 202, description = "The work goes on", body = AcceptedBody,
            headers(("Location" = String, description = "Its operation"), ("Retry-After" = u64, description = "Seconds"))),
        (status = 409, description = "`request-id-reused`: the requestId stands for another body. \
            `operation-running`: another body is being worked on for one of the resources. \
            `superseded`: the operation of this requestId failed, and another one has changed its resources since", body = ErrorBody),
        CallErrors))]
pub(crate) async fn apply(
    State(api): State<Api>,
    caller: CallerOf,
    TicketOf(ticket): TicketOf,
    request: Request,
) -> Result<Response, Refusal> {
    let (parts, bytes) = request.into_parts();
    let bytes = body::read(&parts, bytes, &api.inner.config).await?;
    let (mut request, plan_hash) = ApplyBody::parse(&bytes, &api.inner.config)?.into_request()?;
    drop(bytes);
    caller.admit(&mut request.application)?;
    // A task of its own, since dropping the connection must not stop the work between two writes. The ticket keeps
    // it among the running requests, so a stopping host waits for it.
    let (provisioner, name) = (api.inner.provisioner.clone(), caller.name());
    let kept = ticket.clone();
    let work = async move {
        let outcome = provisioner.apply(name, request, plan_hash).await;
        drop(kept);
        outcome
    };
    let joined = tokio::spawn(work.in_current_span()).await;
    let outcome = joined.map_err(|_| Refusal::internal(ticket.request_id()))??;
    match outcome {
        Ok(Work::Accepted { id, retry_after }) => accepted(&api, &caller, id, retry_after),
        Ok(Work::Done(applied)) => Ok(json(StatusCode::OK, &ApplyAnswer::from(Ok(applied)))),
        Err(failed) => Ok(json(StatusCode::OK, &ApplyAnswer::from(Err(failed)))),
    }
}

fn accepted(api: &Api, caller: &CallerOf, id: String, retry_after: Duration) -> Result<Response, Refusal> {
    let place = format!("{}{}/operations/{id}", api.inner.config.base_path, caller.prefix(api));
    let mut response = json(StatusCode::ACCEPTED, &AcceptedBody { operation_id: id });
    let headers = response.headers_mut();
    if let Ok(place) = HeaderValue::try_from(place) {
        headers.insert(header::LOCATION, place);
    }
    headers.insert(header::RETRY_AFTER, operations::seconds(retry_after).into());
    Ok(response)
}

/// Look at what is there; change nothing.
#[utoipa::path(post, path = "/inspect", tag = "provisioner", request_body = InspectBody,
    responses((status = 200, description = "What is there, or why the work failed", body = InspectAnswer), CallErrors))]
pub(crate) async fn inspect(
    State(api): State<Api>,
    caller: CallerOf,
    request: Request,
) -> Result<Response, Refusal> {
    let (parts, bytes) = request.into_parts();
    let bytes = body::read(&parts, bytes, &api.inner.config).await?;
    let mut inquiry = InspectBody::parse(&bytes, &api.inner.config)?.into_inquiry()?;
    caller.admit(&mut inquiry.application)?;
    let outcome = api.inner.provisioner.inspect(inquiry).await?;
    Ok(json(StatusCode::OK, &InspectAnswer::from(outcome)))
}
