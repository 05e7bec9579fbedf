# Formula for a tap. Replace OWNER and the checksum, which a release determines.
class Mccl < Formula
  desc "Collective communication between processes and machines"
  homepage "https://github.com/OWNER/mccl"
  url "https://github.com/OWNER/mccl/archive/v0.1.0.tar.gz"
  sha256 "0000000000000000000000000000000000000000000000000000000000000000"
  license "MIT"

  depends_on "cli11" => :build
  depends_on "cmake" => :build
  depends_on "ninja" => :build
  depends_on "nlohmann-json" => :build
  depends_on "pkgconf" => :build
  depends_on "fmt"
  depends_on "highway"
  depends_on "openssl@3"
  depends_on "spdlog"

  def install
    system "cmake", "-S", ".", "-B", "build", "-G", "Ninja", "-DMCCL_PYTHON=OFF", *std_cmake_args
    system "cmake", "--build", "build"
    system "cmake", "--install", "build"
  end

  test do
    assert_match version.to_s, shell_output("#{bin}/mccl --version")
    system bin/"mccl", "bench", "all_reduce", "--ranks", "2", "--no-bounds", "--sizes", "8", "--seconds", "0.01"
  end
end
