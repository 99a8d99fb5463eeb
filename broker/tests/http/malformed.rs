//! A thousand requests that are wrong, each in its way. Every one is refused, and the broker is as well as before.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rgpu_control::api::{ErrorBody, LeaseState, paths};
use rgpu_control::token::Role;
use serde_json::{Value, json};

use crate::support::{Answer, Bench, broker, heartbeat, raw_and_no_more, registration, request, wish};

/// Numbers that look random, the same in every run.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    fn pick<'a, T>(&mut self, list: &'a [T]) -> &'a T {
        &list[self.below(list.len())]
    }
}

/// The operations that take bodies, with a good one.
fn bodies() -> Vec<(&'static str, &'static str, Value)> {
    let value = |value| serde_json::to_value(value).unwrap();
    vec![
        ("POST", paths::LEASES, value(serde_json::to_value(wish("job")).unwrap())),
        ("POST", paths::NODES, serde_json::to_value(registration("n9")).unwrap()),
        ("POST", "/v1/nodes/n0/heartbeat", serde_json::to_value(heartbeat(0)).unwrap()),
        ("POST", "/v1/nodes/n0/drain", json!({"drain": false})),
        (
            "PUT",
            paths::POLICY,
            json!({"name": "fgd", "network_aware": true, "link_limit": 1.0, "max_remote_share": 1.0, "remote_preference": 1.25}),
        ),
        ("POST", paths::TOKENS, json!({"role": "tenant", "name": "ann", "valid_s": 60})),
    ]
}

/// A value that is of the wrong kind for whatever stood there.
fn of_another_kind(old: &Value, numbers: &mut Numbers) -> Value {
    let wrong = match old {
        Value::String(_) => vec![json!(7), json!([]), json!({}), json!(true)],
        Value::Number(_) => vec![json!("7"), json!([1]), json!({}), json!(-1), json!("NaN")],
        Value::Bool(_) => vec![json!("true"), json!(1), json!(null)],
        Value::Array(_) => vec![json!("a"), json!({"a": 1}), json!([null]), json!([[[]]])],
        Value::Object(_) => vec![json!(1), json!("x"), json!([])],
        Value::Null => vec![json!({"x": 1}), json!([1])],
    };
    numbers.pick(&wrong).clone()
}

fn bytes(kind: usize, tokens: &[(String, &'static str)], numbers: &mut Numbers) -> Vec<u8> {
    let admin = &tokens[0].0;
    let all = bodies();
    let (method, path, good) = numbers.pick(&all).clone();
    let ask = |body: &str| request(method, path, admin, Some(body)).into_bytes();
    match kind {
        // Not HTTP.
        0 => {
            let mut bytes: Vec<u8> = (0..1 + numbers.below(400)).map(|_| numbers.next() as u8).collect();
            bytes.insert(0, *numbers.pick(&[0, 1, 0x16, 0x80, 0xff, b'{']));
            bytes.extend(b"\r\n\r\n");
            bytes
        }
        // A field of another kind.
        1 => {
            let mut value = good;
            let fields: Vec<String> = value.as_object().unwrap().keys().cloned().collect();
            // Absent, a null is what is meant for those that may be left out.
            let field = fields
                .iter()
                .cycle()
                .skip(numbers.below(fields.len()))
                .find(|f| !value[*f].is_null())
                .unwrap();
            value[field] = of_another_kind(&value[field], numbers);
            ask(&value.to_string())
        }
        // A field too many, or one too few.
        2 => {
            let mut value = good;
            let map = value.as_object_mut().unwrap();
            map.insert(format!("field{}", numbers.below(100)), json!(1));
            ask(&value.to_string())
        }
        // Numbers that no type holds.
        3 => {
            let text = good.to_string();
            let huge = [
                "1e999",
                "-1e999",
                "99999999999999999999999999",
                "-9223372036854775809",
                "0x10",
                "1.5.2",
                "Infinity",
                "NaN",
            ];
            let digits = text.find(|c: char| c.is_ascii_digit());
            let text = match text.rfind(":true").or(text.rfind(":false")) {
                Some(at) if numbers.below(2) == 0 => {
                    format!("{}{}{}", &text[..=at], numbers.pick(&huge), &text[at + 5..])
                }
                _ => format!("{{\"gpus\":{},\"x\":{}}}", numbers.pick(&huge), digits.unwrap_or(0)),
            };
            ask(&text)
        }
        // Deep.
        4 => {
            let depth = 100 + numbers.below(50_000);
            let open = *numbers.pick(&["[", "{\"a\":"]);
            ask(&open.repeat(depth))
        }
        // Paths.
        5 => {
            let bad = [
                "/v1/leases/xyz",
                "/v1/leases/0000",
                "/v1/leases/%ff%fe",
                "/v1/leases/00000000000000ag",
                "/v1/leases//renew",
                "/v1/nodes/%00",
                "/v1/nodes/%80",
                "/v1/nodes/no%2Fsuch",
                "/v2/leases",
                "/ui/nothing",
                "//",
                "/v1/../../etc/passwd",
                "/v1/leases/",
                "/v1/leases?all=perhaps",
                "/v1/leases?al=true",
                "/v1/leases?all=true&all=false",
                "/v1/events?since=-1",
                "/v1/leases/00000000000000ab?wait_s=61",
                "/v1/leases/00000000000000ab?wait_s=99999999999999",
                "/v1/events?since=x",
                "/v1/nodes/n0/orders?seen=-1",
                "/v1/nodes/n0/orders?wait_s=1e3",
                "/v1/leases/00000000000000ab?%zz=%zz&wait_s=",
            ];
            request("GET", numbers.pick::<&str>(&bad), admin, None).into_bytes()
        }
        // Tokens.
        6 => {
            let random: String =
                (0..numbers.below(300)).map(|_| char::from(33 + numbers.below(93) as u8)).collect();
            let mut bent = admin.clone().into_bytes();
            let at = numbers.below(bent.len() - 2);
            bent[at] = if bent[at] == b'A' { b'B' } else { b'A' };
            let bent = String::from_utf8(bent).unwrap();
            let token = numbers
                .pick(&[random, bent, format!("{admin}.x"), "a.b.c".into(), "rgpu1..".into(), " ".into()])
                .clone();
            request("GET", paths::LEASES, &token, None).into_bytes()
        }
        // Bodies that break off.
        7 => {
            let full = ask(&good.to_string());
            let body = full.windows(4).position(|w| w == b"\r\n\r\n").unwrap() + 4;
            full[..body + numbers.below(full.len() - body)].to_vec()
        }
        // Media types.
        8 => {
            let kind = *numbers.pick(&[
                "text/plain",
                "application/xml",
                "",
                "application/jsonx",
                "multipart/form-data; boundary=x",
                "\u{fc}",
            ]);
            String::from_utf8(ask(&good.to_string()))
                .unwrap()
                .replacen("application/json", kind, 1)
                .into_bytes()
        }
        // Lengths.
        9 => match numbers.below(4) {
            0 => ask(&format!("{{\"name\":\"{}\"}}", "x".repeat(rgpu_broker::api::MAX_BODY))),
            1 => format!("GET /{} HTTP/1.1\r\nhost: b\r\nconnection: close\r\n\r\n", "a".repeat(200_000))
                .into_bytes(),
            2 => format!(
                "GET /v1/health HTTP/1.1\r\nhost: b\r\nconnection: close\r\nx: {}\r\n\r\n",
                "a".repeat(200_000)
            )
            .into_bytes(),
            _ => String::from_utf8(ask("{}"))
                .unwrap()
                .replace("content-length: 2", "content-length: 99999999999999999999999")
                .into_bytes(),
        },
        // Methods.
        10 => {
            let method = *numbers.pick(&["PUT", "TRACE", "OPTIONS", "BREW", "get", "DELETE"]);
            request(method, paths::LEASES, admin, Some("{}")).into_bytes()
        }
        // Chunks.
        11 => {
            let head = format!(
                "POST /v1/leases HTTP/1.1\r\nhost: b\r\nconnection: close\r\nauthorization: Bearer {admin}\r\n\
                 content-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n"
            );
            let tail = *numbers.pick(&[
                "zz\r\n",
                std::str::from_utf8(BROKEN_CHUNK).unwrap(),
                "-1\r\n\r\n",
                "ffffffffffffffffff\r\nx",
                "2\r\n{}\r\n0\r\n\r\n",
                "0\r\n\r\n",
            ]);
            (head + tail).into_bytes()
        }
        // JSON that isn't, or isn't text.
        12 => {
            let mut text = good.to_string().into_bytes();
            let at = numbers.below(text.len() - 1);
            match numbers.below(3) {
                0 => text.truncate(at),
                1 => text.insert(0, b'}'),
                _ => text[1..].fill(0xff),
            }
            let head = request(method, path, admin, None);
            let head = head.trim_end().to_owned()
                + &format!("\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n", text.len());
            [head.into_bytes(), text].concat()
        }
        // Well-formed nonsense.
        _ => {
            let mut value = serde_json::to_value(wish("job")).unwrap();
            let (field, nonsense) = numbers
                .pick(&[
                    ("gpus", json!(0)),
                    ("gpus", json!(65535)),
                    ("share_milli", json!(0)),
                    ("share_milli", json!(1001)),
                    ("memory", json!(u64::MAX)),
                    ("holder", json!("")),
                    ("holder", json!("AAAA")),
                    ("name", json!("x".repeat(100_000))),
                    ("machine", json!("")),
                    ("machine", json!("m".repeat(10_000))),
                    ("transport", json!("pigeon")),
                    ("profile", json!("no such profile")),
                    ("scale", json!(-1.0)),
                    ("scale", json!(0.0)),
                    ("goal_s", json!(-5.0)),
                    ("importance", json!(11.0)),
                    ("importance", json!(0.0)),
                    ("models", json!(["No Such Model"])),
                    ("wait_s", json!(61)),
                    ("node", json!("no-such-node")),
                ])
                .clone();
            value[field] = nonsense;
            request("POST", paths::LEASES, &tokens[1].0, Some(&value.to_string())).into_bytes()
        }
    }
}

const KINDS: usize = 14;

/// A chunk that ends before its length.
const BROKEN_CHUNK: &[u8] = b"5\r\nab";

/// What is wrong with an answer.
fn check(number: usize, sent: &[u8], answer: &Answer) -> Option<String> {
    let shown = String::from_utf8_lossy(&sent[..sent.len().min(600)]);
    let wrong = |why: &str| Some(format!("{number} (kind {}): {why}: {answer:?} to {shown}", number % KINDS));
    if !(400..500).contains(&answer.status) {
        return wrong("not refused");
    }
    // What isn't HTTP is refused before the API sees it.
    if answer.body.is_empty() {
        return None;
    }
    match serde_json::from_str::<ErrorBody>(&answer.body) {
        Ok(body) if (1..2000).contains(&body.error.message.len()) => None,
        Ok(_) => wrong("a bad message"),
        Err(e) => wrong(&e.to_string()),
    }
}

fn grants(bench: &Bench, name: &str) {
    let ann = bench.client(Role::Tenant, "ann");
    let lease = ann.request_lease(&wish(name)).unwrap();
    assert_eq!(lease.state, LeaseState::Active, "{lease:?}");
    ann.release(lease.id).unwrap();
}

#[test]
fn a_thousand_of_them_do_no_harm() {
    let panics = Arc::new(AtomicUsize::new(0));
    let (count, usual) = (panics.clone(), std::panic::take_hook());
    std::panic::set_hook(Box::new(move |about| {
        if std::thread::current().name().is_some_and(|name| name.contains("broker")) {
            count.fetch_add(1, Ordering::SeqCst);
        }
        usual(about);
    }));
    let bench = broker("");
    bench.add_node("n0");
    grants(&bench, "before");
    let tokens = [(bench.token(Role::Admin, "root"), "admin"), (bench.token(Role::Tenant, "ann"), "tenant")];
    let mut numbers = Numbers(0x9e37_79b9_7f4a_7c15);
    let mut wrong = Vec::new();
    for number in 0..1000 {
        let sent = bytes(number % KINDS, &tokens, &mut numbers);
        // Where something is missing, the broker must not go on waiting for it. Elsewhere the connection stays open in both
        // directions: a request whose asker has hung up is dropped, and not always answered.
        let breaks_off = match number % KINDS {
            0 | 7 => true,
            11 => sent.ends_with(BROKEN_CHUNK),
            _ => false,
        };
        let answer =
            if breaks_off { raw_and_no_more(bench.server.address(), &sent) } else { bench.raw(&sent) };
        wrong.extend(check(number, &sent, &answer));
    }
    assert!(wrong.is_empty(), "{} of 1000: {}", wrong.len(), wrong[..wrong.len().min(9)].join("\n"));
    assert_eq!(panics.load(Ordering::SeqCst), 0);
    let metrics = bench.ask("GET", paths::METRICS, &tokens[0].0, None).body;
    assert!(metrics.lines().any(|line| line == "rgpu_broker_http_panics_total 0"), "{metrics}");
    // Nothing was granted meanwhile: there is only the lease of before, whose end its node has not confirmed.
    let leases = bench.client(Role::Tenant, "ann").leases(true).unwrap();
    assert!(
        leases.iter().all(|lease| lease.name == "before" && lease.state != LeaseState::Active),
        "{leases:?}"
    );
    grants(&bench, "after");
}
