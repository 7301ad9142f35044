//! Errors of the API: a code for programs, a message for people, and the place of the fault.

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Kind of error; names are a promise, and more may follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Code {
    /// The request is invalid.
    BadRequest,
    /// The user is not allowed to make the request.
    Forbidden,
    /// The request over TCP has no valid token.
    Unauthorized,
    /// There is no such route, table, source, algorithm or path.
    NotFound,
    /// The path exists, but not for this method.
    MethodNotAllowed,
    /// The route exists already.
    Exists,
    /// The request is larger than the limit.
    TooLarge,
    /// The request took too long to arrive.
    Timeout,
    /// The request is valid but cannot be carried out; nothing was changed.
    Refused,
    /// The request was carried out, but what it changed could not be written: a restart may not find it.
    Unsaved,
    /// The request was carried out, but packets do not follow it yet, or the daemon stopped before that was known.
    NotVisible,
    /// All connections are in use, or as much is being served as may be at one time.
    Busy,
    /// The daemon is stopping; nothing was changed.
    Stopping,
}

impl Code {
    /// Whether the request was carried out nevertheless.
    pub(crate) fn is_done(self) -> bool {
        matches!(self, Self::Unsaved | Self::NotVisible)
    }

    fn status(self) -> StatusCode {
        match self {
            Self::BadRequest => StatusCode::BAD_REQUEST,
            Self::Forbidden => StatusCode::FORBIDDEN,
            Self::Unauthorized => StatusCode::UNAUTHORIZED,
            Self::NotFound => StatusCode::NOT_FOUND,
            Self::MethodNotAllowed => StatusCode::METHOD_NOT_ALLOWED,
            Self::Exists => StatusCode::CONFLICT,
            Self::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Timeout => StatusCode::REQUEST_TIMEOUT,
            Self::Refused => StatusCode::UNPROCESSABLE_ENTITY,
            Self::Unsaved | Self::NotVisible => StatusCode::INTERNAL_SERVER_ERROR,
            Self::Busy | Self::Stopping => StatusCode::SERVICE_UNAVAILABLE,
        }
    }
}

/// Answer to a request that failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct ErrorDocument {
    /// The error.
    pub(crate) error: ApiError,
}

/// Error of a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema, thiserror::Error)]
#[error("{}{message}", place.as_ref().map_or(String::new(), |place| format!("{place}: ")))]
pub(crate) struct ApiError {
    /// Code, for programs.
    pub(crate) code: Code,
    /// Message, for people: what is wrong, and what would be right.
    pub(crate) message: String,
    /// Field, parameter, or file and line of the error.
    #[serde(rename = "where")]
    pub(crate) place: Option<String>,
    /// All errors, where there are several.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) errors: Vec<Detail>,
}

/// One of several errors.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema, thiserror::Error)]
#[error("{}{message}", place.as_ref().map_or(String::new(), |place| format!("{place}: ")))]
pub(crate) struct Detail {
    /// Message, for people.
    pub(crate) message: String,
    /// File and line of the error.
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
        Self::new(Code::Stopping, "the daemon is stopping")
    }

    /// The error of a step behind a change that was made: packets may not follow it if the daemon is stopping.
    pub(crate) fn not_visible_if_stopping(self) -> Self {
        let words = "done, but the daemon is stopping: packets may not follow it yet";
        if self.code == Code::Stopping { Self::new(Code::NotVisible, words) } else { self }
    }

    /// The error of a step behind a change that was made: it may not be written if the daemon is stopping.
    pub(crate) fn unsaved_if_stopping(self) -> Self {
        let words = "done, but the daemon is stopping: a restart may not find it";
        if self.code == Code::Stopping { Self::new(Code::Unsaved, words) } else { self }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let document = ErrorDocument { error: self.clone() };
        let mut response = (self.code.status(), Json(document)).into_response();
        // For the note about the request.
        response.extensions_mut().insert(self);
        response
    }
}
