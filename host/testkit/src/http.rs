//! Calls as a caller of the provisioner API makes them.

use std::time::Duration;

use http::{HeaderMap, Method};
use serde_json::{Value, json};

/// A client whose calls end.
///
/// # Panics
/// When no client can be made.
#[expect(clippy::expect_used, reason = "a test that cannot call cannot go on")]
pub fn client() -> reqwest::Client {
    // An error says that the process has chosen one already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder()
        .timeout(Duration::from_secs(120))
        .redirect(reqwest::redirect::Policy::none())
        .no_proxy()
        .build()
        .expect("an HTTP client")
}

/// An answer, read to its end.
#[derive(Debug, Clone)]
pub struct Answered {
    pub status: u16,
    pub headers: HeaderMap,
    pub text: String,
    /// `Value::Null` where the body is no JSON.
    pub json: Value,
}

/// Calls one server.
#[derive(Debug, Clone)]
pub struct Caller {
    base: String,
    token: Option<String>,
    client: reqwest::Client,
}

impl Caller {
    pub fn new(base: impl Into<String>) -> Self {
        Self { base: base.into(), token: None, client: client() }
    }

    #[must_use]
    pub fn with_token(mut self, token: impl Into<String>) -> Self {
        self.token = Some(token.into());
        self
    }

    pub async fn get(&self, path: &str) -> Answered {
        self.send(Method::GET, path, "", None).await
    }

    pub async fn post(&self, path: &str, body: &Value) -> Answered {
        self.send(Method::POST, path, "application/json", Some(body.to_string())).await
    }

    /// `POST /apply`, and where it is answered 202, its operation's final answer.
    ///
    /// # Panics
    /// When the operation does not end in time.
    #[expect(clippy::panic, reason = "the test has failed")]
    pub async fn apply(&self, body: &Value) -> Answered {
        let first = self.post("/apply", body).await;
        let (202, Some(id)) = (first.status, first.json["operationId"].as_str()) else { return first };
        let end = std::time::Instant::now() + Duration::from_secs(300);
        loop {
            let mut now = self.get(&format!("/operations/{id}")).await;
            if now.status != 200 || now.json["status"] == "done" {
                if let Some(answer) = now.json.as_object_mut() {
                    answer.remove("operationId");
                    answer.remove("status");
                }
                return now;
            }
            if std::time::Instant::now() > end {
                panic!("operation {id} did not end: {}", now.text);
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    /// Any call. An empty content type is left out.
    ///
    /// # Panics
    /// When there is no answer.
    #[expect(clippy::panic, reason = "the test has failed")]
    pub async fn send(
        &self,
        method: Method,
        path: &str,
        content_type: &str,
        body: Option<String>,
    ) -> Answered {
        match self.try_send(method.clone(), path, content_type, body).await {
            Ok(answered) => answered,
            Err(e) => panic!("{method} {}{path} had no answer: {e:?}", self.base),
        }
    }

    /// Any call of a server that may be gone. An empty content type is left out.
    ///
    /// # Errors
    /// Why there is no answer.
    pub async fn try_send(
        &self,
        method: Method,
        path: &str,
        content_type: &str,
        body: Option<String>,
    ) -> Result<Answered, reqwest::Error> {
        let url = format!("{}{path}", self.base);
        let mut request = self.client.request(method, &url);
        if !content_type.is_empty() {
            request = request.header(http::header::CONTENT_TYPE, content_type);
        }
        if let Some(token) = &self.token {
            request = request.bearer_auth(token);
        }
        if let Some(body) = body {
            request = request.body(body);
        }
        let response = request.send().await?;
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let text = response.text().await?;
        let json = serde_json::from_str(&text).unwrap_or_default();
        Ok(Answered { status, headers, text, json })
    }
}

/// The same body as another call: under a new request id.
#[must_use]
pub fn renewed(body: &Value) -> Value {
    let mut body = body.clone();
    body["requestId"] = format!("r-{}", uuid::Uuid::new_v4()).into();
    body
}

/// Builds the body of a plan, apply or inspect call.
#[derive(Debug, Clone)]
pub struct SampleRequest {
    id: String,
    kind: String,
    type_name: String,
    application: Value,
    changes: Vec<Value>,
}

impl SampleRequest {
    /// For a pair written `kind/type`, of application `orders` of tenant `acme` in `prod`.
    pub fn new(pair: &str) -> Self {
        let (kind, type_name) = pair.split_once('/').unwrap_or((pair, ""));
        Self {
            id: format!("r-{}", uuid::Uuid::new_v4()),
            kind: kind.into(),
            type_name: type_name.into(),
            application: json!({"id": "orders", "environment": "prod", "tenant": "acme"}),
            changes: Vec::new(),
        }
    }

    #[must_use]
    pub fn id(mut self, id: &str) -> Self {
        self.id = id.into();
        self
    }

    /// `id`, `environment`, `tenant` or `instance`.
    #[must_use]
    pub fn application(mut self, field: &str, value: &str) -> Self {
        self.application[field] = value.into();
        self
    }

    #[must_use]
    pub fn change(mut self, resource: &str, action: &str, settings: Value) -> Self {
        self.changes.push(json!({"resource": resource, "action": action, "settings": settings}));
        self
    }

    #[must_use]
    pub fn create(self, settings: Value) -> Self {
        self.change("main", "create", settings)
    }

    /// An update of `main` with what was applied before.
    #[must_use]
    pub fn update(mut self, settings: Value, previous: Value) -> Self {
        self.changes.push(json!({
            "resource": "main", "action": "update", "settings": settings, "previousSettings": previous,
        }));
        self
    }

    #[must_use]
    pub fn delete(mut self, previous: Value) -> Self {
        self.changes.push(json!({"resource": "main", "action": "delete", "previousSettings": previous}));
        self
    }

    /// For /inspect: what the caller believes in.
    #[must_use]
    pub fn expect(mut self, resource: &str, settings: Value, outputs: Value) -> Self {
        let expected = json!({"settings": settings, "outputs": outputs});
        self.changes.push(json!({"resource": resource, "expected": expected}));
        self
    }

    pub fn body(&self) -> Value {
        json!({
            "requestId": self.id, "kind": self.kind, "type": self.type_name,
            "application": self.application, "changes": self.changes,
        })
    }
}
