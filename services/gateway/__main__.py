from potstill.service.serve import run_service
from services.gateway.app import build
from services.gateway.settings import GatewaySettings

if __name__ == "__main__":
    run_service(GatewaySettings, build)
