//! The page at `/`: files that are part of the program, as they lie in `crates/router/page`.
//!
//! Plain HTML, CSS, SVG and modules: nothing is built, and nothing comes from another host. The numbers are those of the API.

use axum::Router;
use axum::http::StatusCode;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE, ETAG, HeaderMap, IF_NONE_MATCH};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use sha2::{Digest, Sha256};

use super::backend::Requests;
use super::error::{ApiError, Code};
use super::extract::Segment;

/// A file of the page: name, content type, content.
type File = (&'static str, &'static str, &'static str);

/// Rows of files by their name.
macro_rules! files {
    ($($name:literal: $kind:literal),* $(,)?) => {
        &[$(($name, $kind, include_str!(concat!("../../page/", $name)))),*]
    };
}

const FILES: &[File] = files![
    "index.html": "text/html; charset=utf-8",
    "icon.svg": "image/svg+xml",
    "style.css": "text/css; charset=utf-8",
    "main.js": "text/javascript; charset=utf-8",
    "tools.js": "text/javascript; charset=utf-8",
    "overview.js": "text/javascript; charset=utf-8",
    "graph.js": "text/javascript; charset=utf-8",
    "tables.js": "text/javascript; charset=utf-8",
    "packet.js": "text/javascript; charset=utf-8",
    "space.js": "text/javascript; charset=utf-8",
];

/// Whether a path is a file of the page, which everybody may have who can connect: it holds nothing of the router.
pub(super) fn is_file(path: &str) -> bool {
    path == "/" || path.starts_with("/page/")
}

/// Paths of the page.
pub(super) fn paths() -> Router<Requests> {
    Router::new()
        .route("/", get(|headers: HeaderMap| async move { file("index.html", &headers) }))
        .route(
            "/page/{name}",
            get(|Segment(name): Segment, headers: HeaderMap| async move { file(&name, &headers) }),
        )
}

/// Response with a file, or 304 where the client has it.
fn file(name: &str, headers: &HeaderMap) -> Response {
    let Some((_, kind, text)) = FILES.iter().find(|(known, ..)| *known == name) else {
        return ApiError::new(Code::NotFound, "no such file of the page").into_response();
    };
    let digest = Sha256::digest(text);
    let tag: String = digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    let tag = format!("\"{tag}\"");
    let same = headers.get(IF_NONE_MATCH).is_some_and(|known| known.as_bytes() == tag.as_bytes());
    let head = [(CONTENT_TYPE, *kind), (CACHE_CONTROL, "no-cache"), (ETAG, &tag)];
    match same {
        true => (StatusCode::NOT_MODIFIED, head).into_response(),
        false => (head, *text).into_response(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_have_types_and_tags() {
        for (name, kind, text) in FILES {
            assert!(!text.is_empty() && !kind.is_empty(), "{name}");
            let first = file(name, &HeaderMap::new());
            let tag = first.headers()[ETAG].clone();
            assert_eq!(first.status(), StatusCode::OK);
            assert_eq!(first.headers()[CONTENT_TYPE], *kind);
            let again = file(name, &HeaderMap::from_iter([(IF_NONE_MATCH, tag)]));
            assert_eq!(again.status(), StatusCode::NOT_MODIFIED);
        }
        assert_eq!(file("main.rs", &HeaderMap::new()).status(), StatusCode::NOT_FOUND);
        assert!(is_file("/page/main.js") && is_file("/") && !is_file("/v1/status"));
    }

    #[test]
    fn files_name_no_other_host() {
        for (name, _, text) in FILES {
            for (at, _) in text.match_indices("://") {
                assert!(text[at..].starts_with("://www.w3.org/"), "{name}: {}", &text[at..][..30]);
            }
        }
    }
}
