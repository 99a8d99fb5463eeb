//! The plugin's services.

use rgpu_kubelet_api::registration::registration_server::Registration;
use rgpu_kubelet_api::registration::{
    InfoRequest, PluginInfo, RegistrationStatus, RegistrationStatusResponse,
};
use rgpu_kubelet_api::{dra_v1, dra_v1beta1};
use tonic::{Request, Response, Status};

use super::prepare::Preparer;
use crate::container::cdi_name;
use crate::names::{DRIVER, POOL};

/// The most claims that one call can name. A pod has a few.
const MOST_CLAIMS: usize = 1024;

/// Tells the kubelet about the plugin.
pub(super) struct Registrar {
    pub(super) endpoint: String,
}

#[tonic::async_trait]
impl Registration for Registrar {
    async fn get_info(&self, _: Request<InfoRequest>) -> Result<Response<PluginInfo>, Status> {
        Ok(Response::new(PluginInfo {
            r#type: "DRAPlugin".into(),
            name: DRIVER.into(),
            endpoint: self.endpoint.clone(),
            supported_versions: vec!["v1.DRAPlugin".into(), "v1beta1.DRAPlugin".into()],
        }))
    }

    async fn notify_registration_status(
        &self,
        request: Request<RegistrationStatus>,
    ) -> Result<Response<RegistrationStatusResponse>, Status> {
        let status = request.into_inner();
        if status.plugin_registered {
            tracing::info!("the kubelet has registered the plugin");
        } else {
            tracing::error!("the kubelet refuses the plugin: {}", status.error);
        }
        Ok(Response::new(RegistrationStatusResponse {}))
    }
}

/// Answers the kubelet about claims.
#[derive(Clone)]
pub(super) struct Plugin(pub(super) Preparer);

fn check(claims: usize) -> Result<(), Status> {
    if claims > MOST_CLAIMS {
        return Err(Status::invalid_argument(format!("{claims} claims in one call: {MOST_CLAIMS} at most")));
    }
    Ok(())
}

// Both versions say the same by other types.
macro_rules! plugin {
    ($version:ident) => {
        #[tonic::async_trait]
        impl $version::dra_plugin_server::DraPlugin for Plugin {
            async fn node_prepare_resources(
                &self,
                request: Request<$version::NodePrepareResourcesRequest>,
            ) -> Result<Response<$version::NodePrepareResourcesResponse>, Status> {
                let list = request.into_inner().claims;
                check(list.len())?;
                let prepare = list.into_iter().map(|claim| async move {
                    let done = self.0.prepare(&claim.namespace, &claim.name, &claim.uid).await;
                    let answer = match done {
                        Ok(prepared) => $version::NodePrepareResourceResponse {
                            devices: prepared
                                .devices
                                .iter()
                                .map(|device| $version::Device {
                                    request_names: vec![device.request.clone()],
                                    pool_name: POOL.into(),
                                    device_name: device.device.clone(),
                                    cdi_device_ids: vec![cdi_name(&claim.uid)],
                                })
                                .collect(),
                            error: String::new(),
                        },
                        Err(why) => {
                            tracing::warn!(
                                "the claim {}/{} is not prepared: {why}",
                                claim.namespace,
                                claim.name
                            );
                            $version::NodePrepareResourceResponse { devices: Vec::new(), error: why }
                        }
                    };
                    (claim.uid, answer)
                });
                let claims = futures_util::future::join_all(prepare).await.into_iter().collect();
                Ok(Response::new($version::NodePrepareResourcesResponse { claims }))
            }

            async fn node_unprepare_resources(
                &self,
                request: Request<$version::NodeUnprepareResourcesRequest>,
            ) -> Result<Response<$version::NodeUnprepareResourcesResponse>, Status> {
                let list = request.into_inner().claims;
                check(list.len())?;
                let unprepare = |claim: $version::Claim| {
                    let error = self.0.unprepare(&claim.uid).err().unwrap_or_default();
                    (claim.uid, $version::NodeUnprepareResourceResponse { error })
                };
                let claims = list.into_iter().map(unprepare).collect();
                Ok(Response::new($version::NodeUnprepareResourcesResponse { claims }))
            }
        }
    };
}

plugin!(dra_v1);
plugin!(dra_v1beta1);
