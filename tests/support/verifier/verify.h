// Runs the schedules of all ranks symbolically and proves what they compute.
#pragma once

#include <span>
#include <string>

#include "schedule/schedule.h"

namespace mccl::schedule {

/// Returns an empty string if the schedules (one per rank, in rank order, of the given problems)
/// are correct. Otherwise describes the first defect, with its rank and step. Proves that
/// - the k-th send to a peer and its k-th receive have the same size;
/// - no ranks can deadlock, even if a send ends only with its receive: the graph of all steps, with
///   their waits, the order of messages per pair and direction, the pairing of send and receive,
///   and the waits for arrivals, has no cycle;
/// - what is read from a window was published before, and stays until it has been read; the ranks
///   of a node arrive equally often, and use equally much of it. The same holds for what is read
///   from the memory of a rank, where the schedule allows it, until the rank leaves the call;
/// - waits order every two steps that access the same memory, if one of them writes it (computed
///   again, not taken from the schedule); regions lie inside their memories;
/// - the outputs are right: each reduced element holds every rank's contribution exactly once, was
///   completed exactly once, and is the same expression on every rank, operand for operand; each
///   copied element comes from the right rank and place;
/// - input is not written (see Problem::in_place).
std::string verify(std::span<const Problem> problems, std::span<const Schedule> schedules);

}  // namespace mccl::schedule
