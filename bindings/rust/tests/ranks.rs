//! Tests the crate on ranks that are threads of one process.

use mccl::{Context, Error, Group, Op, Store};
use std::thread;

/// Runs `body` on `size` ranks, and returns the results in rank order.
fn on_ranks<R: Send>(size: i32, body: impl Fn(&Group) -> R + Sync) -> Vec<R> {
    let store = Store::in_memory().unwrap();
    thread::scope(|scope| {
        let ranks: Vec<_> = (0..size)
            .map(|rank| {
                let (store, body) = (&store, &body);
                scope.spawn(move || {
                    let context = Context::new(rank, size, store).unwrap();
                    let world = context.world().unwrap();
                    let result = body(&world);
                    let _ = world.barrier();
                    result
                })
            })
            .collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    })
}

#[test]
fn collectives() {
    on_ranks(3, |world| {
        let me = world.rank() as f32;
        assert_eq!(world.size(), 3);

        let mut x = [me + 1.0; 5];
        world.all_reduce(&mut x, Op::Sum).unwrap();
        assert_eq!(x, [6.0; 5]);

        let mut y = [me as i64; 2];
        world.broadcast(&mut y, 2).unwrap();
        assert_eq!(y, [2, 2]);

        let mut all = [0.0; 6];
        world.all_gather(&[me, -me], &mut all).unwrap();
        assert_eq!(all, [0.0, -0.0, 1.0, -1.0, 2.0, -2.0]);

        let mut part = [0.0; 1];
        world.reduce_scatter(&[1.0, 2.0, 3.0], &mut part, Op::Max).unwrap();
        assert_eq!(part, [me + 1.0]);

        let mut parts = [0u8; 3];
        world.all_to_all(&[world.rank() as u8; 3], &mut parts).unwrap();
        assert_eq!(parts, [0, 1, 2]);
    });
}

#[test]
fn messages_and_groups() {
    on_ranks(2, |world| {
        if world.rank() == 0 {
            world.send(&[7u32, 8], 1, 5).unwrap();
        } else {
            let mut data = [0u32; 2];
            world.recv(&mut data, 0, 5).unwrap();
            assert_eq!(data, [7, 8]);
        }
        let own = world.split(world.rank() as i32, 0).unwrap().unwrap();
        assert_eq!((own.rank(), own.size()), (0, 1));
        assert!(world.split(-1, 0).unwrap().is_none());
    });
}

#[test]
fn errors_say_what_is_wrong() {
    on_ranks(2, |world| {
        let wrong: Error = world.all_gather(&[1.0f32], &mut [0.0; 3]).unwrap_err();
        assert_eq!(wrong.status, 1);
        assert!(wrong.message.contains("3 elements and the other 1"), "{wrong}");
        let wrong = world.broadcast(&mut [0u8], 9).unwrap_err();
        assert_eq!(wrong.status, 1, "{wrong}");
        assert!(wrong.message.contains('9'), "{wrong}");
        let wrong = world.all_reduce(&mut [1.0f32], Op::BitOr).unwrap_err();
        assert_eq!(wrong.status, 1, "{wrong}");
    });
}

#[test]
fn an_abort_fails_the_calls_of_every_rank() {
    let failed = on_ranks(2, |world| {
        if world.rank() == 0 {
            world.abort("enough").unwrap();
        }
        world.all_reduce(&mut [1.0f32], Op::Sum).unwrap_err().message
    });
    assert!(failed.iter().all(|message| message.contains("enough")), "{failed:?}");
}

#[test]
fn the_version_is_that_of_the_library() {
    assert_eq!(mccl::version(), env!("CARGO_PKG_VERSION"));
}
