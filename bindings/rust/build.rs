//! Links libmccl, from the folder LIBMCCL_DIR or, if that is not set, from the linker's search
//! path.

fn main() {
    println!("cargo:rerun-if-env-changed=LIBMCCL_DIR");
    if let Ok(folder) = std::env::var("LIBMCCL_DIR") {
        println!("cargo:rustc-link-search=native={folder}");
        println!("cargo:rustc-link-arg=-Wl,-rpath,{folder}");
    }
    println!("cargo:rustc-link-lib=dylib=mccl");
}
