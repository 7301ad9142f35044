//! Requests over the bare socket that no command makes.

use super::Lab;

/// Table 0 is the main one, as to the kernel, and a life that is too long is refused.
#[test]
fn tables_and_lives_have_the_bounds_of_the_kernel() {
    let Some(lab) = Lab::new("bounds", &[]) else { return };
    let posted = |more: &str| {
        let body = format!("{{\"prefix\":\"198.18.0.0/15\",\"table\":0,\"action\":{more}}}");
        lab.http("POST", "/v1/routes", &body).0
    };
    let endless = format!("\"add\",\"kind\":\"prohibit\",\"expires\":{}", u64::MAX);
    assert_eq!(posted(&endless), 400);
    assert_eq!(posted("\"add\",\"kind\":\"prohibit\""), 200);
    assert!(lab.text("route get 198.18.0.1").contains("198.18.0.0/15"));
    assert_eq!(posted("\"delete\""), 200);
    assert!(!lab.run("route get 198.18.0.1").status.success());
    lab.end();
}
