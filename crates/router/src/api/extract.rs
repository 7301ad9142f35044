//! Parameters and bodies of requests: every error names its place.

use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::http::request::Parts;
use http_body_util::LengthLimitError;
use serde::de::DeserializeOwned;

use super::error::{ApiError, Code};

/// Largest body, in bytes: a configuration with thousands of fixed routes fits.
pub(super) const LARGEST_BODY: usize = 4 << 20;
/// Longest time for a body to arrive.
const LONGEST_BODY: Duration = Duration::from_secs(10);

/// Parameters of a request, from `?a=b&c=d`.
pub(super) struct Parameters<T>(pub(super) T);

impl<T: DeserializeOwned, S: Sync> FromRequestParts<S> for Parameters<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        let query = parts.uri.query().unwrap_or_default();
        serde_urlencoded::from_str(query)
            .map(Self)
            .map_err(|error| ApiError::at(Code::BadRequest, "query", error))
    }
}

/// Body of a request, read as JSON whatever its content type.
pub(super) struct Document<T>(pub(super) T);

impl<T: DeserializeOwned, S: Sync> FromRequest<S> for Document<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, _: &S) -> Result<Self, ApiError> {
        let bytes = body(request.into_body()).await?;
        serde_json::from_slice(&bytes).map(Self).map_err(|error| {
            ApiError::at(Code::BadRequest, "body", format_args!("invalid JSON: {error}"))
        })
    }
}

async fn body(body: Body) -> Result<axum::body::Bytes, ApiError> {
    let Ok(read) = tokio::time::timeout(LONGEST_BODY, to_bytes(body, LARGEST_BODY)).await else {
        let seconds = LONGEST_BODY.as_secs();
        let words = format_args!("the body did not arrive within {seconds} s");
        return Err(ApiError::at(Code::Timeout, "body", words));
    };
    read.map_err(|error| {
        use std::error::Error;
        let too_large = error.source().is_some_and(<dyn Error>::is::<LengthLimitError>);
        if too_large {
            let words = format_args!("more than {LARGEST_BODY} bytes");
            ApiError::at(Code::TooLarge, "body", words)
        } else {
            ApiError::at(Code::BadRequest, "body", error)
        }
    })
}
