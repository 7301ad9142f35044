//! Parameters and bodies of requests: every error names its place.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::extract::{FromRequest, FromRequestParts, Path, Request};
use axum::http::header::CONTENT_LENGTH;
use axum::http::request::Parts;
use http_body_util::LengthLimitError;
use serde::de::DeserializeOwned;
use tokio::sync::Semaphore;

use super::about::{About, Noted};
use super::connections::Connection;
use super::error::{ApiError, Code};

/// Largest body, in bytes: a configuration with thousands of fixed routes fits.
pub(super) const LARGEST_BODY: usize = 4 << 20;
/// Largest body that is read at once. Of larger ones, and of those of unknown length, [`LARGE_BODIES`] are read at one time, so
/// that their memory is bounded.
const SMALL_BODY: usize = 64 << 10;
static LARGE_BODIES: Semaphore = Semaphore::const_new(8);
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

/// The segment of a path that names something.
pub(super) struct Segment(pub(super) String);

impl<S: Send + Sync> FromRequestParts<S> for Segment {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let read = Path::<String>::from_request_parts(parts, state).await;
        let Path(text) =
            read.map_err(|error| ApiError::at(Code::BadRequest, "path", error.body_text()))?;
        Ok(Self(text))
    }
}

/// Body of a request, read as JSON whatever its content type.
pub(super) struct Document<T>(pub(super) T);

impl<T: DeserializeOwned + About, S: Sync> FromRequest<S> for Document<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, _: &S) -> Result<Self, ApiError> {
        let connection = request.extensions().get::<Arc<Connection>>().cloned();
        let noted = request.extensions().get::<Noted>().cloned();
        let waits = |waits| connection.iter().for_each(|known| known.set_waiting(waits));
        let length = request.headers().get(CONTENT_LENGTH).and_then(|text| text.to_str().ok());
        let length = length.and_then(|text| text.parse().ok());
        waits(true);
        let bytes = body(request.into_body(), length).await;
        waits(false);
        let bytes = bytes?;
        let read = serde_json::from_slice(&bytes).map_err(|error| {
            ApiError::at(Code::BadRequest, "body", format_args!("invalid JSON: {error}"))
        });
        let document: T = read?;
        noted.iter().for_each(|noted| noted.set(&document));
        Ok(Self(document))
    }
}

/// Body of this length, where the client has stated it.
async fn body(body: Body, length: Option<usize>) -> Result<axum::body::Bytes, ApiError> {
    let too_large =
        || ApiError::at(Code::TooLarge, "body", format_args!("more than {LARGEST_BODY} bytes"));
    if length.is_some_and(|length| length > LARGEST_BODY) {
        return Err(too_large());
    }
    let read = async {
        let is_small = length.is_some_and(|length| length <= SMALL_BODY);
        let _room = if is_small { None } else { LARGE_BODIES.acquire().await.ok() };
        to_bytes(body, LARGEST_BODY).await
    };
    let Ok(read) = tokio::time::timeout(LONGEST_BODY, read).await else {
        let seconds = LONGEST_BODY.as_secs();
        let words = format_args!("the body did not arrive within {seconds} s");
        return Err(ApiError::at(Code::Timeout, "body", words));
    };
    read.map_err(|error| {
        use std::error::Error;
        match error.source().is_some_and(<dyn Error>::is::<LengthLimitError>) {
            true => too_large(),
            false => ApiError::at(Code::BadRequest, "body", error),
        }
    })
}

#[cfg(test)]
mod tests {
    use axum::http::StatusCode;
    use axum::routing::get;
    use hyper::service::Service;
    use hyper_util::service::TowerToHyperService;

    use super::super::error::ErrorDocument;
    use super::*;

    #[test]
    fn a_path_that_is_no_text_is_answered_as_other_mistakes() {
        let name = |Segment(name): Segment| async move { name };
        let routes: axum::Router = axum::Router::new().route("/x/{name}", get(name));
        let routes = TowerToHyperService::new(routes);
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let answer = |path: &str| {
            let request = Request::builder().uri(path).body(Body::empty()).unwrap();
            runtime.block_on(async {
                let response = Service::call(&routes, request).await.unwrap();
                (response.status(), to_bytes(response.into_body(), 1000).await.unwrap())
            })
        };
        assert_eq!(answer("/x/a%20b"), (StatusCode::OK, "a b".into()));
        let (status, body) = answer("/x/%ff");
        assert_eq!(status, StatusCode::BAD_REQUEST);
        let ErrorDocument { error } = serde_json::from_slice(&body).unwrap();
        assert_eq!((error.code, error.place.as_deref()), (Code::BadRequest, Some("path")));
    }
}
