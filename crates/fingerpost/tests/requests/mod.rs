//! Requests over the bare socket that no command makes.

use super::Lab;

/// Table 0 is the main one, as to the kernel, and a lifetime that is too long is refused.
#[test]
fn tables_and_lifetimes_have_the_bounds_of_the_kernel() {
    let Some(lab) = Lab::new("bounds", &[]) else { return };
    let posted = |more: &str| {
        let body = format!("{{\"prefix\":\"198.18.0.0/15\",\"table\":0,\"action\":{more}}}");
        lab.http("POST", "/v1/routes", &body).0
    };
    let most = u64::from(u32::MAX);
    for (seconds, status) in [(u64::MAX, 400), (most + 1, 400), (most, 200)] {
        let words = format!("\"add\",\"kind\":\"prohibit\",\"expires\":{seconds}");
        assert_eq!(posted(&words), status, "{seconds}");
    }
    assert!(lab.text("route get 198.18.0.1").contains("198.18.0.0/15"));
    assert_eq!(posted("\"delete\""), 200);
    assert_eq!(lab.run("route get 198.18.0.1").status.code(), Some(1), "not found");
    lab.end();
}
