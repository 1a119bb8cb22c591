//! Who calls, decided from the headers before a body is read.

use std::sync::Arc;

use axum::extract::rejection::RawPathParamsRejection;
use axum::extract::{FromRequestParts, Path, RawPathParams};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode, header};
use serde::de::DeserializeOwned;
use sutler_access::{Caller, Denied, Incoming, Operator};
use sutler_dispatch::Asker;
use sutler_model::{Application, Identifier};

use crate::config::own_path;
use crate::in_flight::Ticket;
use crate::refusal::Refusal;
use crate::share::{Counted, Holder};
use crate::state::Api;

/// Whose base path the route stands under.
#[derive(Clone)]
pub(crate) struct OfInstance(pub(crate) Identifier);

/// A caller of the provisioner API, and the instance of its route.
pub(crate) struct CallerOf {
    caller: Caller,
    instance: Option<Identifier>,
    api: Api,
    ticket: Arc<Ticket>,
}

impl CallerOf {
    /// The name that its token has.
    pub(crate) fn name(&self) -> Arc<str> {
        self.caller.name.clone()
    }

    pub(crate) fn asker(&self) -> Asker {
        Asker { caller: self.name(), instance: self.instance.clone() }
    }

    pub(crate) const fn caller(&self) -> &Caller {
        &self.caller
    }

    /// Where the caller's routes begin: empty, or the instance's base path.
    pub(crate) fn prefix(&self, api: &Api) -> String {
        let Some(instance) = self.instance.as_ref().map(Identifier::as_str) else { return String::new() };
        api.inner.config.instances.get(instance).cloned().unwrap_or_else(|| own_path(instance))
    }

    /// Fills in the route's instance, and asks whether the caller may act for this application, now.
    ///
    /// # Errors
    /// 403 or 404 naming the tenant or the instance; 503 where the instance's share is used up.
    pub(crate) fn admit(&self, application: &mut Application) -> Result<(), Refusal> {
        self.instance_of_route(&mut application.instance)?;
        self.caller.allows(application)?;
        // The route's own has been counted by now.
        let named = application.instance.as_ref().filter(|_| self.instance.is_none());
        count(&self.ticket, named.and_then(|i| self.api.inner.shares.of_instance(i.as_str())))
    }

    /// # Errors
    /// 403 where another instance than the route's is named.
    pub(crate) fn instance_of_route(&self, named: &mut Option<Identifier>) -> Result<(), Refusal> {
        let Some(of_route) = &self.instance else { return Ok(()) };
        let named = named.get_or_insert_with(|| of_route.clone());
        if named == of_route {
            return Ok(());
        }
        let message = format!("the route is for instance \"{of_route}\", not \"{named}\"");
        Err(Refusal::new(StatusCode::FORBIDDEN, "forbidden", message).at("/application/instance"))
    }
}

/// An operator is calling the admin API.
pub(crate) struct OperatorCalls(pub(crate) Operator);

impl FromRequestParts<Api> for CallerOf {
    type Rejection = Refusal;
    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, Refusal> {
        let caller = api.inner.access.load().caller(&incoming(parts)?)?;
        remember(parts, &caller.name);
        let instance = instance(parts).await?;
        caller.at_home(instance.as_ref())?;
        if let Some(name) = &instance {
            caller.allows_instance(Some(name))?;
            elsewhere(parts, api, name)?;
        }
        let TicketOf(ticket) = TicketOf::from_request_parts(parts, api).await?;
        let shares = &api.inner.shares;
        let of_route = instance.as_ref().and_then(|i| shares.of_instance(i.as_str()));
        count(&ticket, of_route.or_else(|| shares.of_caller(&caller.name)))?;
        Ok(Self { caller, instance, api: api.clone(), ticket })
    }
}

async fn instance(parts: &mut Parts) -> Result<Option<Identifier>, Refusal> {
    if let Some(OfInstance(name)) = parts.extensions.get() {
        return Ok(Some(name.clone()));
    }
    let params = match RawPathParams::from_request_parts(parts, &()).await {
        Ok(params) => params,
        // A route without any parameter has none of this one either.
        Err(RawPathParamsRejection::MissingPathParams(_)) => return Ok(None),
        // What cannot be read may be an instance's name: the root's routes are not meant.
        Err(e) => return Err(bad_path(&e.body_text())),
    };
    let found =
        params.iter().find(|(name, _)| *name == "instance").map(|(_, value)| Identifier::parse(value));
    found.transpose().map_err(|e| Refusal::not_found(e.to_string()))
}

/// The routes of a configured instance are under its base path, and nowhere else. Only who may use them gets here: to
/// others a configured instance is like one that is not there.
fn elsewhere(parts: &Parts, api: &Api, name: &Identifier) -> Result<(), Refusal> {
    let config = &api.inner.config;
    match config.instances.get(name.as_str()) {
        Some(path) if parts.extensions.get::<OfInstance>().is_none() => Err(Refusal::not_found(format!(
            "the routes of instance \"{name}\" are under its own base path, {}{path}",
            config.base_path
        ))),
        _ => Ok(()),
    }
}

/// Takes a place within the share of who has one.
fn count(ticket: &Ticket, holder: Option<&Holder>) -> Result<(), Refusal> {
    if let (Some(holder), Some(counted)) = (holder, Counted::of(ticket.route())) {
        ticket.keep(holder.take(counted)?);
    }
    Ok(())
}

impl FromRequestParts<Api> for OperatorCalls {
    type Rejection = Refusal;
    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, Refusal> {
        let operator = api.inner.access.load().operator(&incoming(parts)?)?;
        remember(parts, &operator.name);
        Ok(Self(operator))
    }
}

/// The route's parameters: [`Path`], whose own refusals are no JSON.
pub(crate) struct PathOf<T>(pub(crate) T);

impl<T: DeserializeOwned + Send> FromRequestParts<Api> for PathOf<T> {
    type Rejection = Refusal;
    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, Refusal> {
        let found = Path::<T>::from_request_parts(parts, api).await;
        found.map(|Path(params)| Self(params)).map_err(|e| bad_path(&e.body_text()))
    }
}

fn bad_path(why: &str) -> Refusal {
    Refusal::bad_body(format!(
        "the path of the request cannot be read: {why}; send it as percent-encoded UTF-8"
    ))
}

/// The request's ticket, which the edge put there.
pub(crate) struct TicketOf(pub(crate) Arc<Ticket>);

impl FromRequestParts<Api> for TicketOf {
    type Rejection = Refusal;
    async fn from_request_parts(parts: &mut Parts, _: &Api) -> Result<Self, Refusal> {
        parts
            .extensions
            .get::<Arc<Ticket>>()
            .cloned()
            .map(Self)
            .ok_or_else(|| Refusal::internal("without a ticket"))
    }
}

fn remember(parts: &Parts, name: &Arc<str>) {
    if let Some(ticket) = parts.extensions.get::<Arc<Ticket>>() {
        ticket.set_caller(name.clone());
    }
}

fn incoming(parts: &Parts) -> Result<Incoming<'_>, Denied> {
    let text = |name: &header::HeaderName| one(&parts.headers, name).map(|v| v.and_then(|v| v.to_str().ok()));
    // Two Authorization headers, or one that is no text: which one counts is not for us to guess.
    let authorization = match one(&parts.headers, &header::AUTHORIZATION) {
        Ok(None) => None,
        Ok(Some(v)) => Some(v.to_str().map_err(|_| Denied::Malformed)?),
        Err(()) => return Err(Denied::Malformed),
    };
    let host = match parts.uri.authority() {
        Some(authority) => Some(authority.as_str()),
        None => text(&header::HOST).unwrap_or_default(),
    };
    let present = |name: &str| parts.headers.get(name).map(|v| v.to_str().unwrap_or("unreadable"));
    Ok(Incoming { authorization, host, origin: present("origin"), fetch_site: present("sec-fetch-site") })
}

fn one<'a>(headers: &'a HeaderMap, name: &header::HeaderName) -> Result<Option<&'a header::HeaderValue>, ()> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (first, None) => Ok(first),
        _ => Err(()),
    }
}
