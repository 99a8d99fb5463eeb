use super::*;

const AES_128: u16 = 0x1301;
const AES_256: u16 = 0x1302;
const CHACHA: u16 = 0x1303;

fn traffic(suite: u16, seed: u8, sequence: u64) -> Traffic {
    let length = if suite == AES_256 { 48 } else { 32 };
    Traffic { secret: Zeroizing::new((0..length).map(|i| seed ^ i).collect()), sequence }
}

/// A session's two ends; what the first receives has the given number.
fn pair_at(suite: u16, sequence: u64) -> (Records, Records) {
    let (up, down) = (traffic(suite, 0x40, sequence), traffic(suite, 0x80, 0));
    let first = Secrets { suite, receiving: up.clone(), sending: down.clone() };
    let second = Secrets { suite, receiving: down, sending: up };
    (Records::new(first).unwrap(), Records::new(second).unwrap())
}

fn pair() -> (Records, Records) {
    pair_at(AES_128, 0)
}

/// What comes of one record: the step, the data, and what is to be answered.
fn hear(records: &mut Records, mut record: Vec<u8>) -> (io::Result<Step>, Vec<u8>, Vec<u8>) {
    let (mut control, mut data) = (Vec::new(), Vec::new());
    let step = records.decrypt(&mut record, &mut control, &mut |bytes| data.extend_from_slice(bytes));
    (step, data, control)
}

fn sealed(by: &mut Records, kind: u8, content: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    by.sending.seal(kind, content, &mut out).unwrap();
    out
}

/// A record whose plaintext, kind and padding included, is this.
fn raw(by: &mut Records, plain: &[u8]) -> Vec<u8> {
    let half = &mut by.sending;
    let [high, low] = ((plain.len() + TAG) as u16).to_be_bytes();
    let header = [DATA, 3, 3, high, low];
    let mut body = plain.to_vec();
    let nonce = half.nonce().unwrap();
    half.key.seal_in_place_append_tag(nonce, Aad::from(header), &mut body).unwrap();
    [&header[..], &body].concat()
}

/// The alert that the peer is told.
fn alert_in(to: &mut Records, control: Vec<u8>) -> u8 {
    let (step, _, answer) = hear(to, control);
    assert!(answer.is_empty(), "an alert is not answered");
    let text = step.unwrap_err().to_string();
    text.rsplit(' ').next().unwrap().parse().expect(&text)
}

/// The alert that a record is answered with.
fn refused(record: impl FnOnce(&mut Records) -> Vec<u8>) -> u8 {
    let (mut here, mut there) = pair();
    let record = record(&mut there);
    let (step, data, control) = hear(&mut here, record);
    assert_eq!(step.unwrap_err().kind(), io::ErrorKind::InvalidData);
    assert!(data.is_empty(), "nothing of it is taken");
    alert_in(&mut there, control)
}

fn bytes(hex: &str) -> Vec<u8> {
    let digit = |i: usize| u8::from_str_radix(&hex[i..i + 2], 16).unwrap();
    (0..hex.len()).step_by(2).map(digit).collect()
}

#[test]
fn keys_follow_from_secrets_as_in_the_published_trace() {
    // RFC 8448, section 3: the server's and the client's application traffic.
    for (secret, key, iv) in [
        (
            "a11af9f05531f856ad47116b45a950328204b4f44bfb6b3a4b4f1f3fcb631643",
            "9f02283b6c9c07efc26bb9f2ac92e356",
            "cf782b88dd83549aadf1e984",
        ),
        (
            "9e40646ce79a7f9dc05af8889bce6552875afa0b06df0087f792ebb7c17504a5",
            "17422dda596ed5d9acd890e3c63f5051",
            "5b78923dee08579033e523d9",
        ),
    ] {
        let suite = Suite::new(AES_128).unwrap();
        let expand = |label, length| suite.expand(&bytes(secret), label, length).unwrap().to_vec();
        assert_eq!((expand("key", 16), expand("iv", 12)), (bytes(key), bytes(iv)));
    }
}

#[test]
fn a_nonce_is_the_iv_with_the_number_in_its_last_eight_bytes() {
    let suite = Suite::new(CHACHA).unwrap();
    let mut half = Half::new(suite, traffic(CHACHA, 1, 0x0102_0304_0506_0708)).unwrap();
    let iv = *half.iv;
    let expected: [u8; NONCE_LEN] = std::array::from_fn(|i| iv[i] ^ if i < 4 { 0 } else { (i - 3) as u8 });
    assert_eq!(half.nonce().unwrap().as_ref(), &expected);
    assert_eq!(half.sequence, 0x0102_0304_0506_0709);
}

#[test]
fn what_is_sealed_is_opened_whatever_the_cipher_and_the_length() {
    for suite in [AES_128, AES_256, CHACHA] {
        let (mut here, mut there) = pair_at(suite, 77);
        for length in [0, 1, 4095, MAX_PLAIN] {
            let data = vec![length as u8; length];
            let mut out = Vec::new();
            there.encrypt(&data, &mut out).unwrap();
            assert!(out.len() <= MAX_RECORD);
            let (step, got, control) = hear(&mut here, out);
            assert!(step.unwrap() == Step::Data && got == data && control.is_empty());
        }
        assert!(there.encrypt(&[0; MAX_PLAIN + 1], &mut Vec::new()).is_err());
    }
    assert!(Suite::new(0xc02f).is_err(), "a cipher suite of TLS 1.2");
}

#[test]
fn a_record_counts_once_and_in_its_turn() {
    let (mut here, mut there) = pair();
    let (first, second) = (sealed(&mut there, DATA, b"1"), sealed(&mut there, DATA, b"2"));
    assert_eq!(hear(&mut here, first.clone()).1, b"1");
    let (step, _, control) = hear(&mut here, first);
    assert!(step.is_err());
    assert_eq!(alert_in(&mut there, control), BAD_RECORD_MAC);
    assert_eq!(refused(|_| second), BAD_RECORD_MAC);
}

#[test]
fn no_number_is_used_twice() {
    let (mut here, mut there) = pair_at(AES_128, u64::MAX - 1);
    // Only the peer's own carelessness leads there: keys are renewed long before.
    let last = sealed(&mut there, DATA, b"last");
    assert_eq!(hear(&mut here, last).1, b"last");
    assert!(there.sending.seal(DATA, b"x", &mut Vec::new()).is_err());
    assert_eq!(there.sending.sequence, u64::MAX);
    assert!(here.receiving.nonce().is_err());
}

#[test]
fn keys_are_renewed_in_time() {
    let (mut here, mut there) = pair_at(AES_128, REFRESH_AFTER - 1);
    let mut out = Vec::new();
    there.encrypt(b"old", &mut out).unwrap();
    assert_eq!(hear(&mut here, std::mem::take(&mut out)).1, b"old");
    there.encrypt(b"new", &mut out).unwrap();
    let update = out.split_off(HEADER + KEY_UPDATE.len() + 2 + TAG);
    let (update, data) = (out, update);
    assert_eq!(hear(&mut here, update).0.unwrap(), Step::Idle);
    assert_eq!((hear(&mut here, data).1, there.sending.sequence), (b"new".to_vec(), 1));
}

#[test]
fn padding_is_taken_off_and_belongs_to_the_limit() {
    let (mut here, mut there) = pair();
    let padded = raw(&mut there, &[b"ab\0", &[DATA][..], &[0; 900]].concat());
    assert_eq!(hear(&mut here, padded).1, b"ab\0");
    let longest = [&vec![7; 1000][..], &[DATA], &vec![0; MAX_PLAIN - 1000]].concat();
    let longest = raw(&mut there, &longest);
    assert_eq!(hear(&mut here, longest).1.len(), 1000);
    let too_long = [&vec![7; 1000][..], &[DATA], &vec![0; MAX_PLAIN - 999]].concat();
    assert_eq!(refused(|there| raw(there, &too_long)), RECORD_OVERFLOW);
    assert_eq!(refused(|there| raw(there, &vec![DATA; MAX_PLAIN + 2])), RECORD_OVERFLOW);
    // Padding alone has no kind.
    assert_eq!(refused(|there| raw(there, &[0; 40])), UNEXPECTED_MESSAGE);
    assert_eq!(refused(|there| raw(there, &[])), UNEXPECTED_MESSAGE);
    // More than a record can have is not even looked at.
    let beyond = [&[DATA, 3, 3, 0x41, 1][..], &vec![0; MAX_PLAIN + 257]].concat();
    assert_eq!(refused(|_| beyond), RECORD_OVERFLOW);
}

#[test]
fn what_is_cut_off_or_changed_is_refused() {
    assert_eq!(refused(|_| vec![DATA, 3, 3, 0, 0]), BAD_RECORD_MAC);
    assert_eq!(refused(|_| [&[DATA, 3, 3, 0, 15][..], &[0; 15]].concat()), BAD_RECORD_MAC);
    assert_eq!(refused(|_| vec![DATA, 3]), UNEXPECTED_MESSAGE);
    for at in 1..HEADER + 3 + TAG {
        let change = |there: &mut Records| {
            let mut record = sealed(there, DATA, b"ab");
            record[at] ^= 1;
            record
        };
        assert_eq!(refused(change), BAD_RECORD_MAC, "byte {at}");
    }
    // Unencrypted ones, among them the `change_cipher_spec` that is allowed during the handshake.
    for kind in [20, ALERT, HANDSHAKE, 24, 0] {
        assert_eq!(refused(|_| vec![kind, 3, 3, 0, 1, 1]), UNEXPECTED_MESSAGE, "kind {kind}");
    }
}

#[test]
fn only_known_messages_are_taken() {
    for (kind, content) in [
        (HANDSHAKE, &b""[..]),
        (ALERT, b""),
        (ALERT, &[1]),
        (ALERT, &[1, 0, 1, 0]),
        // A part of a message, two at once, and one of another kind.
        (HANDSHAKE, &[24, 0, 0]),
        (HANDSHAKE, &[24, 0, 0, 1, 0, 24, 0, 0, 1, 0]),
        (HANDSHAKE, &[4, 0, 0, 1, 0]),
        (20, &[1]),
        (99, b"x"),
    ] {
        assert_eq!(refused(|there| sealed(there, kind, content)), UNEXPECTED_MESSAGE, "{kind}: {content:?}");
    }
    assert_eq!(refused(|there| sealed(there, HANDSHAKE, &[24, 0, 0, 1, 2])), ILLEGAL_PARAMETER);
}

#[test]
fn alerts_end_a_session_whatever_their_level() {
    for level in [1, 2] {
        let (mut here, mut there) = pair();
        let record = sealed(&mut there, ALERT, &[level, USER_CANCELED]);
        assert_eq!(hear(&mut here, record).0.unwrap(), Step::Idle);
        let record = sealed(&mut there, ALERT, &[level, CLOSE_NOTIFY]);
        assert_eq!(hear(&mut here, record).0.unwrap(), Step::Closed);
        let (mut here, mut there) = pair();
        let record = sealed(&mut there, ALERT, &[level, BAD_RECORD_MAC]);
        assert_eq!(alert_in(&mut here, record), BAD_RECORD_MAC);
    }
    let (mut here, mut there) = pair();
    let mut out = Vec::new();
    there.close(&mut out).unwrap();
    assert_eq!(hear(&mut here, out).0.unwrap(), Step::Closed);
}

#[test]
fn other_keys_are_answered_once_however_often_they_are_asked_for() {
    let (mut here, mut there) = pair();
    for _ in 0..1000 {
        let ask = sealed(&mut there, HANDSHAKE, &[24, 0, 0, 1, 1]);
        there.sending.refresh().unwrap();
        let (step, _, control) = hear(&mut here, ask);
        // A side that says nothing has nothing to answer: what it would have to keep for that would grow.
        assert!(step.unwrap() == Step::Idle && control.is_empty());
    }
    let mut out = Vec::new();
    here.encrypt(b"ab", &mut out).unwrap();
    let data = out.split_off(HEADER + KEY_UPDATE.len() + 2 + TAG);
    let mut answer = out.clone();
    // It doesn't ask for others in its turn.
    assert_eq!(there.receiving.open(&mut answer).unwrap(), (HANDSHAKE, &[24, 0, 0, 1, 0][..]));
    there.receiving.refresh().unwrap();
    assert_eq!(hear(&mut there, data).1, b"ab");
    here.encrypt(b"cd", &mut Vec::new()).unwrap();
    assert_eq!(here.sending.sequence, 2, "the same keys");
    let more = sealed(&mut there, DATA, b"ef");
    assert_eq!(hear(&mut here, more).1, b"ef");
}
