# Sums a vector over all ranks of a job through the C interface:
#   LIBMCCL=/path/to/libmccl.so.0 mccl launch -n 2 julia all_reduce.jl
# The calls block. Julia must not run callbacks on the threads of MCCL, so use no callback.
const libmccl = get(ENV, "LIBMCCL", "libmccl")
const F32, SUM = Int32(11), Int32(0)  # mccl_dtype and mccl_reduce_op of mccl/c.h

# Raises the message of the call's error. The message belongs to the thread, so the task must not
# move to another thread between the two calls.
function check(status::Int32)
    status == 0 || error(unsafe_string(ccall((:mccl_last_error, libmccl), Cstring, ())))
end

function join_job()
    context = Ref{Ptr{Cvoid}}()
    check(ccall((:mccl_context_from_environment, libmccl), Int32,
                (Ptr{Cvoid}, Ref{Ptr{Cvoid}}), C_NULL, context))
    group = Ref{Ptr{Cvoid}}()
    check(ccall((:mccl_context_world, libmccl), Int32,
                (Ptr{Cvoid}, Ref{Ptr{Cvoid}}), context[], group))
    return context[], group[]
end

function all_reduce!(group::Ptr{Cvoid}, values::Vector{Float32})
    GC.@preserve values check(ccall((:mccl_all_reduce, libmccl), Int32,
        (Ptr{Cvoid}, Ptr{Float32}, Ptr{Float32}, Csize_t, Int32, Int32, Ptr{Cvoid}, Ptr{Cvoid}),
        group, values, values, length(values), F32, SUM, C_NULL, C_NULL))
    return values
end

context, world = join_job()
rank = ccall((:mccl_group_rank, libmccl), Int32, (Ptr{Cvoid},), world)
count = ccall((:mccl_group_size, libmccl), Int32, (Ptr{Cvoid},), world)
values = all_reduce!(world, fill(Float32(rank + 1), 4))
println("rank $rank of $count: $values")
ccall((:mccl_group_destroy, libmccl), Cvoid, (Ptr{Cvoid},), world)
ccall((:mccl_context_destroy, libmccl), Cvoid, (Ptr{Cvoid},), context)
