//! Sums a vector over all processes. Run it with `mccl launch -n 2 ./all_reduce`.

fn main() -> Result<(), mccl::Error> {
    let context = mccl::Context::from_environment()?;
    let world = context.world()?;
    let mut x = [world.rank() as f32 + 1.0; 4];
    world.all_reduce(&mut x, mccl::Op::Sum)?;
    println!("rank {} of {}: {:?}", world.rank(), world.size(), x);
    world.barrier()
}
