//! How the API says no: a code for programs, a message for people, the place where it is known.

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What kind of refusal; names are a promise, there may be more of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Code {
    /// The request makes no sense.
    BadRequest,
    /// Who asks may not.
    Forbidden,
    /// There is no such route, table, source, algorithm or path.
    NotFound,
    /// There is such a path, but not for this method.
    MethodNotAllowed,
    /// There is such a route already.
    Exists,
    /// The request is larger than any that makes sense.
    TooLarge,
    /// The request took too long to arrive.
    Timeout,
    /// Understood, but it cannot be done; nothing was changed.
    Refused,
    /// The daemon is ending.
    Stopping,
}

impl Code {
    fn status(self) -> StatusCode {
        match self {
            Self::BadRequest => StatusCode::BAD_REQUEST,
            Self::Forbidden => StatusCode::FORBIDDEN,
            Self::NotFound => StatusCode::NOT_FOUND,
            Self::MethodNotAllowed => StatusCode::METHOD_NOT_ALLOWED,
            Self::Exists => StatusCode::CONFLICT,
            Self::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Timeout => StatusCode::REQUEST_TIMEOUT,
            Self::Refused => StatusCode::UNPROCESSABLE_ENTITY,
            Self::Stopping => StatusCode::SERVICE_UNAVAILABLE,
        }
    }
}

/// A refusal, as JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct ErrorDocument {
    /// What was wrong.
    pub(crate) error: ApiError,
}

/// What was wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema, thiserror::Error)]
#[error("{}{message}", place.as_ref().map_or(String::new(), |place| format!("{place}: ")))]
pub(crate) struct ApiError {
    /// For programs.
    pub(crate) code: Code,
    /// For people: what is wrong, and what would be right.
    pub(crate) message: String,
    /// The field, parameter, or file and line that it is about.
    #[serde(rename = "where")]
    pub(crate) place: Option<String>,
    /// All that is wrong, where it is more than one thing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) errors: Vec<Detail>,
}

/// One of several things that are wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct Detail {
    /// What is wrong.
    pub(crate) message: String,
    /// Where: file and line.
    #[serde(rename = "where")]
    pub(crate) place: Option<String>,
}

impl ApiError {
    pub(crate) fn new(code: Code, message: impl ToString) -> Self {
        Self { code, message: message.to_string(), place: None, errors: Vec::new() }
    }

    pub(crate) fn at(code: Code, place: &str, message: impl ToString) -> Self {
        Self { place: Some(place.to_owned()), ..Self::new(code, message) }
    }

    pub(crate) fn stopping() -> Self {
        Self::new(Code::Stopping, "the daemon is ending")
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        (self.code.status(), Json(ErrorDocument { error: self })).into_response()
    }
}
