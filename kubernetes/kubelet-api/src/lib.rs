//! The gRPC services between a kubelet and its plugins: messages, clients and servers, made of the files in `proto/`.
//!
//! All of them are spoken over unix sockets of the node. Who serves what: the kubelet [`device_plugin`]'s `Registration` and
//! [`pod_resources`]; a plugin the others.
#![allow(missing_docs, unreachable_pub, clippy::all)]

/// How a plugin is registered.
pub mod registration {
    tonic::include_proto!("pluginregistration");
}

/// Dynamic resource allocation, the stable version (Kubernetes 1.34).
pub mod dra_v1 {
    tonic::include_proto!("k8s.io.kubelet.pkg.apis.dra.v1");
}

/// Dynamic resource allocation, the version before (Kubernetes 1.32).
pub mod dra_v1beta1 {
    tonic::include_proto!("k8s.io.kubelet.pkg.apis.dra.v1beta1");
}

/// Device plugins.
pub mod device_plugin {
    tonic::include_proto!("v1beta1");
}

/// Which pods have which resources.
pub mod pod_resources {
    tonic::include_proto!("v1");
}
