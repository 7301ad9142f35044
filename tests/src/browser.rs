//! A headless Chromium in a network namespace, driven over its DevTools protocol by a pipe: JSON messages, each ended by a zero.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::netns::command;
use crate::patience;

/// Longest wait for a reply, or for something on a page.
const LONGEST: Duration = Duration::from_secs(20);

/// A browser with pages, of which one is driven. Killed when dropped.
pub struct Browser {
    child: Child,
    to: ChildStdin,
    from: Receiver<Value>,
    number: u64,
    session: Option<String>,
    /// Errors that the pages have written, and addresses that they have requested.
    errors: Vec<String>,
    requested: Vec<String>,
}

impl Browser {
    /// Starts it in a namespace, with a folder of its own, and opens an empty page.
    ///
    /// # Panics
    /// When it does not start.
    pub fn start(namespace: &str, folder: &str) -> Self {
        let options = "--headless=new --no-sandbox --disable-gpu --disable-dev-shm-usage --no-first-run \
                       --disable-background-networking --disable-component-update --disable-extensions \
                       --disable-sync --hide-scrollbars --force-color-profile=srgb --lang=en-US";
        let script = format!(
            "exec chromium {options} --user-data-dir={folder}/chromium --remote-debugging-pipe about:blank \
             3<&0 4>&1 0</dev/null 1>/dev/null 2>{folder}/chromium.log"
        );
        let mut child = command(namespace, "sh -c");
        let child = child.arg(script).env("HOME", folder).stdin(Stdio::piped());
        let mut child = child.stdout(Stdio::piped()).spawn().expect("ip was found before");
        let to = child.stdin.take().expect("it is piped");
        let answers = BufReader::new(child.stdout.take().expect("it is piped"));
        let (sender, from) = channel();
        std::thread::spawn(move || {
            for message in answers.split(0).map_while(Result::ok) {
                let Ok(message) = serde_json::from_slice(&message) else { continue };
                if sender.send(message).is_err() {
                    return;
                }
            }
        });
        let (errors, requested) = (Vec::new(), Vec::new());
        let mut browser = Self { child, to, from, number: 0, session: None, errors, requested };
        let page = browser.new_page();
        browser.turn_to(&page);
        browser
    }

    /// Opens an empty page in a window of its own; its name for [`Browser::turn_to`].
    ///
    /// # Panics
    /// When it does not open.
    pub fn new_page(&mut self) -> String {
        let driven = self.session.take();
        let window = json!({"url": "about:blank", "newWindow": true});
        let target = self.call("Target.createTarget", window);
        let attach = json!({"targetId": target["targetId"], "flatten": true});
        let session = self.call("Target.attachToTarget", attach);
        let page = session["sessionId"].as_str().expect("a session").to_owned();
        self.turn_to(&page);
        for domain in ["Page", "Runtime", "Network", "Log"] {
            self.call(&format!("{domain}.enable"), json!({}));
        }
        self.session = driven;
        page
    }

    /// Drives this page from now on.
    pub fn turn_to(&mut self, page: &str) {
        self.session = Some(page.to_owned());
    }

    /// Calls a method of the protocol; what it returns.
    ///
    /// # Panics
    /// When it fails, or the browser does not reply.
    pub fn call(&mut self, method: &str, parameters: Value) -> Value {
        self.number += 1;
        let mut message = json!({"id": self.number, "method": method, "params": parameters});
        if let Some(session) = &self.session {
            message["sessionId"] = session.as_str().into();
        }
        let mut bytes = message.to_string().into_bytes();
        bytes.push(0);
        self.to.write_all(&bytes).expect("the browser runs");
        let until = Instant::now() + patience(LONGEST);
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let message = self.from.recv_timeout(left);
            let message = message.unwrap_or_else(|_| panic!("{method}: no reply"));
            if message["id"] == self.number {
                assert!(message["error"].is_null(), "{method}: {}", message["error"]);
                return message["result"].clone();
            }
            self.note(&message);
        }
    }

    fn note(&mut self, event: &Value) {
        let what = &event["params"];
        match event["method"].as_str().unwrap_or_default() {
            "Runtime.exceptionThrown" => self.errors.push(what["exceptionDetails"].to_string()),
            "Runtime.consoleAPICalled" if what["type"] == "error" => {
                self.errors.push(what["args"].to_string());
            }
            "Log.entryAdded" if what["entry"]["level"] == "error" => {
                self.errors.push(what["entry"].to_string());
            }
            "Network.requestWillBeSent" => {
                let url = what["request"]["url"].as_str().unwrap_or_default();
                self.requested.push(url.to_owned());
            }
            _ => {}
        }
    }

    /// Opens an address.
    pub fn open(&mut self, address: &str) {
        self.call("Page.navigate", json!({"url": address}));
    }

    /// Value of an expression on the page.
    ///
    /// # Panics
    /// When it throws.
    pub fn value(&mut self, expression: &str) -> Value {
        let parameters =
            json!({"expression": expression, "returnByValue": true, "awaitPromise": true});
        let result = self.call("Runtime.evaluate", parameters);
        assert!(result["exceptionDetails"].is_null(), "{expression}: {result}");
        result["result"]["value"].clone()
    }

    /// Waits until an expression is true.
    ///
    /// # Panics
    /// When it does not become true.
    pub fn wait(&mut self, expression: &str) {
        let until = Instant::now() + patience(LONGEST);
        while self.value(&format!("Boolean({expression})")) != true {
            if Instant::now() > until {
                let text = self.value("document.body.innerText");
                panic!("not so: {expression}: {:?} {text}", self.errors);
            }
            std::thread::sleep(Duration::from_millis(30));
        }
    }

    /// Presses a key: its name and number.
    pub fn press(&mut self, key: &str, number: u32) {
        let text = if key.chars().count() == 1 { key } else { "" };
        let text = if key == "Enter" { "\r" } else { text };
        for kind in ["keyDown", "keyUp"] {
            let mut event = json!({"type": kind, "key": key, "windowsVirtualKeyCode": number});
            if kind == "keyDown" && !text.is_empty() {
                event["text"] = text.into();
            }
            self.call("Input.dispatchKeyEvent", event);
        }
    }

    /// Types a text.
    pub fn insert(&mut self, text: &str) {
        self.call("Input.insertText", json!({"text": text}));
    }

    /// Clicks at a share of the width and height of an element.
    ///
    /// # Panics
    /// When the page has no such element.
    pub fn click(&mut self, selector: &str, at: (f64, f64)) {
        let place = format!(
            "(() => {{ const e = document.querySelector({selector:?}); e.scrollIntoView({{block: 'center'}}); const b = \
             e.getBoundingClientRect(); return [b.x + b.width * {}, b.y + b.height * {}]; }})()",
            at.0, at.1
        );
        let place = self.value(&place);
        let (x, y) = (place[0].clone(), place[1].clone());
        for kind in ["mouseMoved", "mousePressed", "mouseReleased"] {
            let button = if kind == "mouseMoved" { "none" } else { "left" };
            let event = json!({"type": kind, "x": x, "y": y, "button": button, "clickCount": 1});
            self.call("Input.dispatchMouseEvent", event);
        }
    }

    /// Sets the size of the window, and whether colors are dark.
    pub fn size(&mut self, width: u32, height: u32, dark: bool) {
        let mobile = width < 500;
        let size =
            json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": mobile});
        self.call("Emulation.setDeviceMetricsOverride", size);
        let scheme = if dark { "dark" } else { "light" };
        let features = json!([{"name": "prefers-color-scheme", "value": scheme}]);
        self.call("Emulation.setEmulatedMedia", json!({"features": features}));
    }

    /// A picture of the window as PNG. It is not blank.
    ///
    /// # Panics
    /// When one color fills nearly all of it.
    pub fn picture(&mut self) -> Vec<u8> {
        let taken = self.call("Page.captureScreenshot", json!({"format": "png"}));
        let text = taken["data"].as_str().expect("it is text");
        let colors = self.value(&format!(
            "(async () => {{ const raw = Uint8Array.from(atob('{text}'), (c) => c.charCodeAt(0)); const image = await \
             createImageBitmap(new Blob([raw])); const canvas = new OffscreenCanvas(image.width, image.height); const to = \
             canvas.getContext('2d'); to.drawImage(image, 0, 0); const data = new Uint32Array(to.getImageData(0, 0, \
             image.width, image.height).data.buffer); const known = new Map(); for (const color of data) known.set(color, \
             (known.get(color) ?? 0) + 1); return [known.size, Math.max(...known.values()) / data.length]; }})()"
        ));
        let (number, largest) = (colors[0].as_u64(), colors[1].as_f64());
        assert!(number > Some(40) && largest < Some(0.98), "a blank picture: {colors}");
        decoded(text)
    }

    /// Share of the pixels of the window that differ from a picture (PNG), and share of those that are left out: texts with
    /// digits, which are of the moment, and elements that `live` (a selector of CSS) matches.
    ///
    /// # Panics
    /// When the picture is none.
    pub fn differs(&mut self, from: &[u8], live: &str) -> (f64, f64) {
        let taken = self.call("Page.captureScreenshot", json!({"format": "png"}));
        let taken = taken["data"].as_str().expect("it is text");
        let shares = self.value(&format!(
            "(async () => {{ const read = async (text) => {{ const raw = Uint8Array.from(atob(text), (c) => c.charCodeAt(0)); const \
             image = await createImageBitmap(new Blob([raw])); const to = new OffscreenCanvas(image.width, \
             image.height).getContext('2d'); to.drawImage(image, 0, 0); return to; }}; const both = [await read('{taken}'), await \
             read('{}')]; const [width, height] = [both[0].canvas.width, both[0].canvas.height]; if (both[1].canvas.width !== \
             width || both[1].canvas.height !== height) return [1, 0]; const boxes = \
             [...document.querySelectorAll({live:?})].map((e) => e.getBoundingClientRect()); const texts = \
             document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT); while (texts.nextNode()) if \
             (/\\d/.test(texts.currentNode.data)) {{ const range = document.createRange(); \
             range.selectNodeContents(texts.currentNode); boxes.push(...range.getClientRects()); }} for (const to of both) {{ \
             to.fillStyle = '#123456'; for (const box of boxes) to.fillRect(box.left - 12, box.top - 2, box.width + 24, box.height + \
             4); }} const [a, b] = both.map((to) => to.getImageData(0, 0, width, height).data); let [differ, out] = [0, 0]; for (let \
             i = 0; i < a.length; i += 4) {{ if (a[i] === 0x12 && a[i + 1] === 0x34 && a[i + 2] === 0x56) out++; else if \
             (Math.abs(a[i] - b[i]) + Math.abs(a[i + 1] - b[i + 1]) + Math.abs(a[i + 2] - b[i + 2]) > 48) differ++; }} return [differ \
             / width / height, out / width / height]; }})()",
            encoded(from)
        ));
        let share = |at: usize| shares[at].as_f64().expect("it is a number");
        (share(0), share(1))
    }

    /// Addresses that the page has requested so far.
    pub fn requested(&self) -> &[String] {
        &self.requested
    }

    /// Errors of the page so far.
    pub fn errors(&self) -> &[String] {
        &self.errors
    }

    /// Forgets errors that were to be expected.
    pub fn forget_errors(&mut self) {
        self.errors.clear();
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // Its processes end with it.
        let _ = self.to.write_all(b"{\"id\":0,\"method\":\"Browser.close\"}\0");
        std::thread::sleep(Duration::from_millis(200));
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Bytes of a text in base64.
fn decoded(text: &str) -> Vec<u8> {
    let digit = |c: u8| match c {
        b'A'..=b'Z' => c - b'A',
        b'a'..=b'z' => c - b'a' + 26,
        b'0'..=b'9' => c - b'0' + 52,
        b'+' => 62,
        _ => 63,
    };
    let mut bytes = Vec::new();
    for four in text.trim_end_matches('=').as_bytes().chunks(4) {
        let value = four.iter().fold(0_u32, |value, &c| value << 6 | u32::from(digit(c)));
        let value = value << (6 * (4 - four.len()));
        bytes.extend_from_slice(&value.to_be_bytes()[1..four.len()]);
    }
    bytes
}

/// Bytes in base64.
fn encoded(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len() * 4 / 3 + 4);
    for three in bytes.chunks(3) {
        let value = three.iter().fold(0_u32, |value, &byte| value << 8 | u32::from(byte));
        let value = value << (8 * (3 - three.len()));
        for at in 0..4 {
            let digit = DIGITS[(value >> (18 - 6 * at) & 63) as usize];
            text.push(if at > three.len() { '=' } else { char::from(digit) });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_encoded() {
        for bytes in [&b"abc"[..], b"ab", b"a", b"", b"\xff\xef\x00\x01"] {
            assert_eq!(decoded(&encoded(bytes)), bytes);
        }
        assert_eq!(encoded(b"ab"), "YWI=");
    }

    #[test]
    fn base64_is_decoded() {
        assert_eq!(decoded("YWJj"), b"abc");
        assert_eq!(decoded("YWI="), b"ab");
        assert_eq!(decoded("/+8="), [0xff, 0xef]);
    }
}
