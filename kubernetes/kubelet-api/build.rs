//! Makes Rust of the `.proto` files, without `protoc`.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let files = ["registration", "dra_v1", "dra_v1beta1", "device_plugin", "pod_resources"];
    for file in files.map(|name| format!("proto/{name}.proto")) {
        println!("cargo::rerun-if-changed={file}");
        let described = protox::compile([&file], ["proto"])?;
        tonic_prost_build::configure().compile_fds(described)?;
    }
    Ok(())
}
