use std::sync::Arc;
use std::time::{Duration, Instant};

use proptest::prelude::*;

use super::ring::{GRACE, Last, Place, ROOM, Ring, Taken};
use crate::LogLine;
use crate::output::Item;
use crate::parse::SECOND;

fn line(seconds: f64, text: &str, size: usize) -> Item {
    let text = format!("{text}{}", " ".repeat(size)).into();
    let (pod, container, timestamp): (Arc<str>, Arc<str>, Arc<str>) = ("p".into(), "c".into(), "t".into());
    let line = LogLine::Line { pod, container, timestamp, text };
    Item::Line {
        line,
        nanos: (seconds * 1e3) as i64 * (SECOND / 1000),
        first: true,
        last: true,
        counts: true,
    }
}

fn ring(items: &[Item]) -> Ring {
    let mut ring = Ring::new(3, false);
    for item in items {
        ring.push(item.clone(), Instant::now()).unwrap();
    }
    ring
}

#[test]
fn where_a_follower_goes_on() {
    let items = [
        line(10.0, "a", 0),
        line(11.0, "b", 0),
        // One time stamp.
        line(12.0, "c", 0),
        line(12.0, "d", 0),
        Item::Run(4),
        // Out of order.
        line(12.5, "f", 0),
        line(12.4, "g", 0),
        line(20.0, "h", 0),
    ];
    for (seconds, text, want) in [
        (9.0, "x", Place::Beyond),
        (10.0, "a", Place::At(1, 3)),
        (12.0, "c", Place::At(3, 3)),
        (12.0, "d", Place::At(4, 3)),
        (12.4, "g", Place::At(7, 4)),
        (12.5, "f", Place::At(6, 4)),
        // Lost by the upstream.
        (11.5, "x", Place::At(2, 3)),
        // It may still come, out of order.
        (19.5, "x", Place::Beyond),
        (20.0, "h", Place::At(8, 4)),
        (21.0, "x", Place::Before(8, 4)),
    ] {
        let Item::Line { nanos, .. } = line(seconds, text, 0) else { unreachable!() };
        assert_eq!(ring(&items).after(&Last { nanos, text: text.into() }), want, "{seconds} {text}");
    }
    assert_eq!(ring(&[]).after(&Last { nanos: 0, text: "x".into() }), Place::Before(0, 3));
    // Of a run all of which is kept.
    assert_eq!(ring(&items[..4]).beginning(), None);
    assert_eq!(ring(&items).beginning(), Some((5, 4)));
    assert_eq!(Ring::new(0, true).beginning(), Some((0, 0)));
}

#[test]
fn who_waits_goes_on_without_who_is_slow_but_not_at_once() {
    let began = Instant::now();
    let mut ring = Ring::new(0, true);
    let fill = |ring: &mut Ring, now| while ring.push(line(1.0, "x", 1000), now).is_ok() {};
    let (slow, fast) = (ring.join(began), ring.join(began));
    // Who still reads its past does not lose the place to go on at.
    fill(&mut ring, began + GRACE * 9);
    assert_eq!(ring.beginning(), Some((0, 0)));
    ring.attach(slow, 0, began);
    ring.attach(fast, 0, began);
    // Neither waits for more: both hold the upstream back, for as long as they like.
    assert!(ring.push(line(1.0, "x", 1000), began + GRACE * 9).is_err());
    while matches!(ring.take(fast, began), Taken::Items(_)) {}
    assert!(ring.push(line(1.0, "x", 1000), began + GRACE / 2).is_err());
    assert!(ring.push(line(1.0, "x", 1000), began + GRACE).is_ok());
    assert!(matches!(ring.take(slow, began), Taken::Behind));
    // Who fell behind holds nobody.
    while matches!(ring.take(fast, began), Taken::Items(_)) {}
    assert!(ring.push(line(1.0, "x", 1000), began).is_ok());
    ring.leave(fast);
    fill(&mut ring, began);
    assert!(ring.push(line(1.0, "x", 1000), began + GRACE * 9).is_err(), "who comes back may still need it");
}

proptest! {
    /// Whoever takes whenever: what it gets is without a hole until it is told that there is one; and the bytes that
    /// are kept are bounded.
    #[test]
    fn nothing_is_left_out_in_silence(
        sizes in prop::collection::vec(prop_oneof![9 => 0..3000_usize, 1 => 100_000..300_000_usize], 1..200),
        takes in prop::collection::vec((0..3_usize, 0..5_u64), 1..400),
    ) {
        let (mut now, mut ring) = (Instant::now(), Ring::new(0, true));
        let ids: Vec<u64> = (0..3).map(|_| ring.join(now)).collect();
        ids.iter().for_each(|id| ring.attach(*id, 0, now));
        let mut got: Vec<Option<Vec<usize>>> = vec![Some(Vec::new()); 3];
        let (mut pushed, mut takes) = (0, takes.into_iter());
        let mut items = sizes.iter().enumerate().map(|(n, size)| line(n as f64, &format!("{n} "), *size)).peekable();
        loop {
            while let Some(item) = items.next_if(|item| ring.push(item.clone(), now).is_ok()) {
                pushed += 1;
                prop_assert!(ring.bytes() <= ROOM.max(item.size()));
            }
            let Some((who, tenths)) = takes.next() else { break };
            now += Duration::from_millis(tenths * 100);
            match ring.take(ids[who], now) {
                Taken::Items(items) => {
                    let numbers = items.iter().map(|i| match i {
                        Item::Line { line, .. } => line.text().split(' ').next().unwrap().parse::<usize>().unwrap(),
                        _ => unreachable!(),
                    });
                    got[who].as_mut().unwrap().extend(numbers);
                }
                Taken::Behind => got[who] = None,
                Taken::Nothing | Taken::Ended => {}
            }
            if got[who].is_none() {
                ring.attach(ids[who], ring.end(), now);
                got[who] = Some(Vec::new());
            }
        }
        for got in got.into_iter().flatten() {
            prop_assert!(got.windows(2).all(|w| w[1] == w[0] + 1), "{:?}", got);
            prop_assert!(got.last().is_none_or(|n| *n < pushed));
        }
    }
}
